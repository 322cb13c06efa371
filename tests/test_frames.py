"""Data frames and files as graphs: what comes in, and which row is at fault."""

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from sktifa import GNNClassifier, Graph
from sktifa.exceptions import (
    DatasetError,
    GraphError,
    GraphWarning,
    LabelError,
    ParameterError,
)
from sktifa.frames import TableEncoder, read_table, write_table

pl = pytest.importorskip("polars")

MAKERS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
NODES = {
    "id": ["ann", "bob", "cat", "dan"],
    "age": [20.0, 40.0, None, 30.0],
    "town": ["Ulm", "Bern", None, "Ulm"],
    "member": [True, False, True, True],
    "since": [dt.datetime(2020, 1, day) for day in (1, 3, 5, 7)],
    "club": ["chess", None, "golf", "chess"],
}
EDGES = {
    "source": ["ann", "bob", "cat"],
    "target": ["bob", "cat", "dan"],
    "strength": [1.0, 2.0, 3.0],
}
OURS = {"encoder": TableEncoder()}


def tables(nodes=None, edges=None, make=pd.DataFrame):
    return make({**NODES, **(nodes or {})}), make({**EDGES, **(edges or {})})


# ---------------------------------------------------------------- data frames


@pytest.mark.parametrize("maker", MAKERS)
def test_every_library_makes_the_graph_that_is_worked_out_by_hand(maker):
    nodes, edges = tables(make=MAKERS[maker])
    data = Graph.from_pandas(nodes, edges, weight="strength", label="club", **OURS)
    graph = data.graph
    assert graph.node_names.tolist() == NODES["id"]
    assert data.target.tolist() == NODES["club"]
    by_hand = np.zeros((4, 4))
    by_hand[[0, 1, 2], [1, 2, 3]] = by_hand[[1, 2, 3], [0, 1, 2]] = [1, 2, 3]
    assert_array_equal(graph.adjacency.toarray(), by_hand)
    features = dict(zip(graph.feature_names, graph.features.T, strict=True))
    # The median 30 fills the gap; 20, 40, 30, 30 deviate by the root of 50.
    assert_allclose(features.pop("age"), np.array([-10, 10, 0, 0]) / np.sqrt(50))
    assert features.pop("missingindicator_age").tolist() == [0, 0, 1, 0]
    assert_allclose(
        features.pop("since"), np.array([-3, -1, 1, 3]) / np.sqrt(5), rtol=1e-6
    )
    assert features.pop("member").tolist() == [1, 0, 1, 1]
    assert features.pop("town_Ulm").tolist() == [1, 0, 0, 1]
    assert features.pop("town_Bern").tolist() == [0, 1, 0, 0]
    assert features.pop("town_None").tolist() == [0, 0, 1, 0]
    assert not features
    said = "\n".join(data.report)
    for name in ("age", "town", "member", "since", "club", "'id'", "edges: 3"):
        assert name in said


def test_durations_stand_beside_numbers():
    nodes, edges = tables({"stay": [dt.timedelta(hours=h) for h in (1, 3, 5, 7)]})
    graph = Graph.from_pandas(nodes, edges, features=["stay", "age"], **OURS)
    assert abs(graph.features).max() < 2
    assert_allclose(graph.features[:, 0], np.array([-3, -1, 1, 3]) / np.sqrt(5))


def test_a_frame_of_text_alone_makes_features():
    rng = np.random.default_rng(0)
    words = np.array(["graph", "label", "kernel", "tensor", "bread", "butter", "jam"])
    text = [
        " ".join(rng.choice(words[:4] if i < 50 else words[3:], 6)) for i in range(99)
    ]
    nodes = pd.DataFrame({"text": text})
    edges = pd.DataFrame({"source": range(98), "target": range(1, 99)})
    graph = Graph.from_pandas(nodes, edges, **OURS)
    assert graph.shape == (99, 30)
    middles = [graph.features[:50].mean(0), graph.features[50:].mean(0)]
    distance = [np.linalg.norm(graph.features - m, axis=1) for m in middles]
    assert ((distance[0] < distance[1]) == (np.arange(99) < 50)).mean() > 0.9


def test_labels_are_no_features():
    nodes, edges = tables({"grade": [1, 2, None, 1]})
    graph, y = Graph.from_pandas(nodes, edges, label="grade", return_X_y=True, **OURS)
    assert "grade" not in graph.feature_names
    assert y.tolist() == [1, 2, -1, 1]
    with pytest.raises(
        ParameterError, match="features has 'grade', which is the label"
    ):
        Graph.from_pandas(nodes, edges, label="grade", features=["age", "grade"])
    with pytest.raises(ParameterError, match="features has 'id', which is the id"):
        Graph.from_pandas(nodes, edges, features="id")
    with pytest.raises(ParameterError, match="return_X_y needs y"):
        Graph.from_pandas(nodes, edges, return_X_y=True)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([3, 1, 3, 2], [3, 1, 3, 2]),
        ([3.0, np.nan, 3.0, 2.0], [3, -1, 3, 2]),
        ([0.5, 1.0, 1.0, 0.5], [0.5, 1.0, 1.0, 0.5]),
        ([True, False, True, True], [True, False, True, True]),
        ([True, None, True, False], [True, None, True, False]),
        (pd.Series([1, None, 2, 1], dtype="Int64"), [1, -1, 2, 1]),
        (pd.Categorical(["b", "a", None, "b"]), ["b", "a", None, "b"]),
    ],
)
def test_labels_keep_their_type(labels, expected):
    nodes, edges = tables()
    nodes["label"] = labels
    _, y = Graph.from_pandas(nodes, edges, label="label", return_X_y=True, **OURS)
    assert y.tolist() == expected


def test_times_are_no_labels():
    with pytest.raises(LabelError, match="labels are times"):
        Graph.from_pandas(*tables(), label="since", **OURS)


def test_an_edge_of_two_weights_warns_as_an_edge_index_does():
    edges = {"source": ["ann", "bob", "cat"], "target": ["bob", "ann", "dan"]}
    nodes, edges = tables(edges=edges)
    said = r"nodes 'ann' and 'bob' \(weights 1 and 2\)"
    with pytest.warns(GraphWarning, match=said) as told:
        graph = Graph.from_pandas(nodes, edges, weight="strength", **OURS)
    assert told[0].filename == __file__
    assert graph.adjacency[[0, 2], [1, 3]].tolist() == [2, 3]
    with pytest.raises(GraphError, match="directed"):
        Graph.from_pandas(nodes, edges, weight="strength", directed="error", **OURS)


def test_edges_given_again_and_loops_are_counted():
    edges = {
        "source": ["ann", "bob", "ann", "cat"],
        "target": ["bob", "ann", "bob", "cat"],
        "strength": [1.0, 1.0, 1.0, 9.0],
    }
    nodes, edges = tables(edges=edges)
    data = Graph.from_pandas(nodes, edges, weight="strength", label="club", **OURS)
    assert data.graph.n_edges == 1
    said = "\n".join(data.report)
    assert "1 from 4 rows of edges; 1 from a node to itself left out" in said
    assert "2 rows give an edge again" in said


@pytest.mark.parametrize(
    ("nodes", "edges", "options", "message"),
    [
        ({}, {"source": ["ann", "eve", "bob"]}, {}, "row 1 of edges has source 'eve'"),
        ({}, {"target": ["ann", "bob", None]}, {}, "row 2 of edges has no target"),
        (
            {"id": ["ann", "bob", "cat", "ann"]},
            {},
            {},
            "'ann' stands twice, in row 0 of nodes and in row 3 of nodes",
        ),
        ({"id": ["ann", None, "cat", "dan"]}, {}, {}, "row 1 of nodes has no id"),
        ({}, {}, {"source": "from"}, r"edges has no column 'from', but \['source'"),
        ({}, {}, {"label": "klub"}, "nodes has no column 'klub'"),
        ({}, {}, {"features": ["old"]}, "nodes has no column 'old'"),
        ({}, {}, {"weight": "source"}, r"'source' of edges is no number \(row 0"),
        (
            {},
            {"strength": [1.0, -2.0, 3.0]},
            {"weight": "strength"},
            "row 1 of edges has the weight -2",
        ),
        (
            {},
            {"strength": [1.0, 2.0, None]},
            {"weight": "strength"},
            "row 2 of edges has the weight nan",
        ),
        (
            {"age": [1.0, np.inf, 2, 3]},
            {},
            {},
            "row 1 of nodes has inf in column 'age'",
        ),
        (
            {"age": [[1], [2], [3], [4]]},
            {},
            {},
            "column 'age' of nodes holds objects of type list",
        ),
        (
            {},
            {},
            {"encoder": "passthrough", "features": "town"},
            "'town' of nodes holds no numbers",
        ),
        (
            {},
            {},
            {"encoder": "passthrough", "features": "age"},
            "row 2 of nodes has no value in column 'age'",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_row(nodes, edges, options, message):
    with pytest.raises(GraphError, match=message):
        Graph.from_pandas(*tables(nodes, edges), **{**OURS, **options})


def test_what_is_no_frame_is_refused():
    with pytest.raises(GraphError, match="nodes must be a data frame.*got ndarray"):
        Graph.from_pandas(np.eye(3), pd.DataFrame(EDGES))
    twice = pd.DataFrame(np.eye(4), columns=list("aabb"))
    with pytest.raises(GraphError, match="one name a column"):
        Graph.from_pandas(twice, pd.DataFrame(EDGES))
    with pytest.raises(ParameterError, match="encoder is 'onehot'"):
        Graph.from_pandas(*tables(), encoder="onehot")


def test_a_column_without_values_is_not_dropped_without_a_word():
    nodes, edges = tables({"nothing": [None] * 4})
    with pytest.warns(GraphWarning, match="no row of nodes has a value in nothing"):
        graph = Graph.from_pandas(nodes, edges, **OURS)
    assert not any("nothing" in name for name in graph.feature_names)


def test_where_ids_come_from():
    edges = pd.DataFrame({"source": [10, 11], "target": [11, 12]})
    for index in (pd.Index([10, 11, 12], name="key"), ["10", "11", "12"]):
        by_index = pd.DataFrame({"id": [0, 1, 2]}, index=index)
        assert Graph.from_pandas(by_index, edges, **OURS).feature_names == ["id"]
    by_numbers = pd.DataFrame({"size": [1, 2, 3]}, index=[10, 11, 12])
    assert Graph.from_pandas(by_numbers, edges, **OURS).n_edges == 2
    by_column = pd.DataFrame({"size": [1, 2, 3], "id": [10, 11, 12]})
    for nodes in (by_column, pd.concat([by_column, by_column[:1]])[1:]):
        graph = Graph.from_pandas(nodes, edges, **OURS)
        assert graph.feature_names == ["size"]
        assert graph.select(nodes["id"]).is_whole
    by_row = pd.DataFrame({"size": [1, 2, 3]})
    assert Graph.from_pandas(by_row, edges - 10, **OURS).node_names is None
    with pytest.raises(GraphError, match="row 0 of edges has source 10.*with id="):
        Graph.from_pandas(by_row, edges, **OURS)


@pytest.mark.parametrize("text_in", ["nodes", "edges"])
def test_numbers_in_one_table_are_text_in_the_other(text_in):
    ids, ends = [7, 20, 3], [20, 3]
    if text_in == "nodes":
        ids = [str(i) for i in ids]
    else:
        ends = [str(i) for i in ends]
    nodes = pd.DataFrame({"id": ids, "size": [1, 2, 3]})
    edges = pd.DataFrame({"source": ends[:1], "target": ends[1:]})
    graph = Graph.from_pandas(nodes, edges, **OURS)
    assert graph.adjacency[1, 2] == 1
    assert graph.node_names.tolist() == ids
    floats = pd.DataFrame({"source": [20.0], "target": [3.0]})
    assert Graph.from_pandas(nodes, floats, **OURS).adjacency[1, 2] == 1


def test_nodes_without_features_get_their_own():
    nodes = pl.DataFrame({"id": ["a", "b", "c"]})
    edges = pl.DataFrame({"source": ["a"], "target": ["b"]})
    assert_array_equal(Graph.from_pandas(nodes, edges).features.toarray(), np.eye(3))


def test_numbers_pass_through_as_they_are():
    graph = Graph.from_pandas(
        *tables({"age": [20, 40, 30, 10]}),
        features=["age", "member"],
        encoder="passthrough",
    )
    assert graph.features.tolist() == [[20, 1], [40, 0], [30, 1], [10, 1]]


def test_other_nodes_are_encoded_as_those_before():
    nodes, edges = tables()
    first = Graph.from_pandas(nodes, edges, label="club", **OURS)
    some = nodes[1:3].assign(town=["Ulm", "Rome"])
    second = Graph.from_pandas(
        some, edges[1:2], label="club", encoder=first.encoder
    ).graph
    assert second.feature_names == first.graph.feature_names
    column = first.graph.feature_names.index
    assert second.features[0, column("age")] == first.graph.features[1, column("age")]
    assert second.features[0, column("town_Ulm")] == 1
    towns = [column(f"town_{name}") for name in ("Bern", "Ulm", "None")]
    assert not second.features[1, towns].any()
    with pytest.raises(GraphError, match="'age' holds numbers, but row 0 .* 'old'"):
        Graph.from_pandas(
            some.assign(age="old"), edges[1:2], label="club", encoder=first.encoder
        )


def test_any_transformer_encodes_and_is_left_unfitted():
    scaler = StandardScaler()
    nodes, edges = tables({"age": [20.0, 40.0, 30.0, 30.0]})
    data = Graph.from_pandas(
        nodes, edges, features=["age"], label="club", encoder=scaler
    )
    assert data.graph.feature_names == ["age"]
    assert not hasattr(scaler, "mean_")
    assert data.encoder.mean_.tolist() == [30]


@pytest.mark.filterwarnings("error")
def test_columns_may_have_numbers_for_names():
    frame = pd.DataFrame({0: [1.5, 2.5, 3.5], 1: ["a", "b", "a"], 2: ["x", "y", None]})
    edges = pd.DataFrame({0: [0, 1], 1: [1, 2]})
    for encoder in ("auto", TableEncoder()):
        data = Graph.from_pandas(
            frame, edges, source=0, target=1, label=2, encoder=encoder
        )
        assert sorted(data.graph.feature_names) in (["0", "1_a", "1_b"], ["0", "1_b"])


@pytest.mark.parametrize("maker", MAKERS)
def test_skrub_encodes_where_it_is_installed(maker):
    pytest.importorskip("skrub")
    nodes, edges = tables(make=MAKERS[maker])
    data = Graph.from_pandas(nodes, edges, label="club")
    assert type(data.encoder).__name__ == "TableVectorizer"
    assert abs(data.graph.features).max() < 3
    assert "since_total_seconds" in data.graph.feature_names
    assert any("town" in line for line in data.report)


def test_without_skrub_the_encoder_is_ours(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    data = Graph.from_pandas(*tables(), label="club")
    assert isinstance(data.encoder, TableEncoder)


def test_the_encoder_is_a_transformer_of_its_own():
    encoder = clone(TableEncoder(max_categories=2, n_components=3))
    frame = pd.DataFrame({"word": ["ab", "cd", "ef", None], "size": [1, 2, 3, 4]})
    out = encoder.set_output(transform="pandas").fit_transform(frame)
    assert out.columns.tolist() == ["size", "word_0", "word_1", "word_2"]
    assert not out.iloc[3, 1:].any()


def test_fit_and_predict_by_name():
    rng = np.random.default_rng(0)
    names = [f"n{i}" for i in range(40)]
    nodes = pd.DataFrame({"x": np.repeat([0.0, 5.0], 20) + rng.normal(size=40)})
    nodes.index = names
    edges = pd.DataFrame({"source": names[:-1], "target": names[1:]})
    graph = Graph.from_pandas(nodes, edges)
    model = GNNClassifier(max_iter=30, random_state=0, device="cpu")
    labeled = ["n1", "n5", "n30", "n33"]
    model.fit(graph[labeled], ["low", "low", "high", "high"])
    predicted = graph.by_name(model.predict(graph))
    assert predicted["n2"] == "low"
    assert predicted["n38"] == "high"


# ---------------------------------------------------------------------- files


@pytest.fixture
def write(tmp_path):
    def written(name, text, encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(text.encode(encoding))
        return path

    return written


def test_files_as_people_have_them(write):
    nodes = write(
        "nodes.csv",
        'id;motto;zip;club\r\n1;"carpe; diem";01234;a\r\n\r\n'
        '2;"two\r\nlines";99999;\r\n3;x;01234;b\r\n',
        encoding="utf-8-sig",
    )
    edges = write("edges.tsv", "source\ttarget\tkind\n1\t2\tx\n 2\t3 \ty\n")
    data = Graph.read(nodes, edges, label="club", **OURS)
    assert data.graph.node_names.tolist() == [1, 2, 3]
    assert data.graph.n_edges == 2
    assert data.target.tolist() == ["a", None, "b"]
    assert {"motto_carpe; diem", "zip_01234"} < set(data.graph.feature_names)
    assert "columns not used: kind" in "\n".join(data.report)
    # The line after a blank one and a field of two lines is line 6.
    twice = write("twice.csv", nodes.read_text("utf-8-sig").replace("\n3;", "\n2;"))
    with pytest.raises(GraphError, match="in line 4 of twice.csv and in line 6 of"):
        Graph.read(twice, edges)


def test_what_a_file_holds_is_told_by_its_fields(write):
    table = read_table(
        write(
            "all.csv",
            "whole,gap,flag,day,moment,word,code,big\n"
            "1,1.5,true,2020-01-02,2020-01-02T03:04:05Z,a,007,1e400\n"
            "2,NA,False,,2020-01-02 03:04:06+00:00,NA,12,1\n",
        )
    )
    kinds = [table[name].kind for name in table.columns]
    assert kinds == [
        *["number", "number", "flag", "time", "time", "text", "text", "number"]
    ]
    assert table["whole"].values.dtype == np.int64
    assert table["gap"].missing.tolist() == [False, True]
    assert np.diff(table["moment"].values).tolist() == [1.0]
    assert table["day"].values[0] == 1577923200
    assert table["word"].values.tolist() == ["a", None]
    assert table.ids("code").tolist() == ["007", "12"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nodes.csv is empty"),
        ("id,a,a\n1,2,3\n", "line 1 of nodes.csv has the column 'a' twice"),
        ("id,a\n1,2\n\n2,3,4\n", "line 4 of nodes.csv has 3 fields, the header has 2"),
        ("id,a\n1,2\n2\n", "line 3 of nodes.csv has 1 fields"),
        ('id,a\n1,"x"y\n', "line 2 of nodes.csv can't be read"),
        ('id,a\n1,"x\n2,y\n', "nodes.csv can't be read.*mend its quotes"),
        ("id,a\n1,2\n,3\n", "line 3 of nodes.csv has no id"),
        ("id,a\n1,inf\n2,3\n", "line 2 of nodes.csv has inf in column 'a'"),
        ("id,a\n1,2\n", "line 2 of edges.csv has target 2, which"),
        ("id,a\nx,2\n", "line 2 of edges.csv has source 1, which"),
        ("id,a\n", "line 2 of edges.csv has source 1, which"),
    ],
)
def test_the_line_at_fault_is_named(write, text, message):
    edges = write("edges.csv", "source,target\n1,2\n")
    with pytest.raises(GraphError, match=message):
        Graph.read(write("nodes.csv", text), edges)


def test_files_of_another_kind_are_refused(write, tmp_path):
    latin = write("latin.csv", "id,name\n1,Ann\n2,Zoé\n", encoding="latin-1")
    with pytest.raises(GraphError, match="line 3 of latin.csv is not UTF-8"):
        read_table(latin)
    with pytest.raises(GraphError, match="can't be read as Parquet"):
        read_table(write("broken.parquet", "<html>"))
    with pytest.raises(DatasetError, match="there is no file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path)
    with pytest.raises(ParameterError, match="ends in .csv"):
        read_table(write("nodes.xlsx", ""))


def test_parquet_and_csv_are_the_same_graph(tmp_path):
    nodes, edges = tables(make=pa.table)
    parquet, text = {}, {}
    for name, table in (("nodes", nodes), ("edges", edges)):
        parquet[name] = tmp_path / f"{name}.parquet"
        pyarrow.parquet.write_table(table, parquet[name])
        text[name] = tmp_path / f"{name}.csv"
        table.to_pandas().to_csv(text[name], index=False)
    one, other = (
        Graph.read(**files, label="club", weight="strength", **OURS)
        for files in (parquet, text)
    )
    assert one.graph.fingerprint == other.graph.fingerprint
    assert one.graph.feature_names == other.graph.feature_names
    assert one.target.tolist() == other.target.tolist()


def test_a_first_column_without_a_name_is_the_id(write):
    nodes, edges = tables()
    nodes = write("nodes.csv", nodes.set_index("id").rename_axis(None).to_csv())
    edges = write("edges.csv", edges.to_csv())
    assert Graph.read(nodes, edges, **OURS).node_names.tolist() == NODES["id"]


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.parquet"])
def test_tables_are_written_whole_or_not_at_all(tmp_path, name):
    path = tmp_path / name
    write_table({"node": ["a,b", "c"], "chance": [0.25, 0.5]}, path)
    table = read_table(path)
    assert table.ids("node").tolist() == ["a,b", "c"]
    assert table["chance"].values.tolist() == [0.25, 0.5]

    def broken():
        yield 0.1
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_table({"node": ["a", "b"], "chance": broken()}, path)
    assert len(read_table(path)) == 2
    assert [p.name for p in tmp_path.iterdir()] == [name]
