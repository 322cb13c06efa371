"""What holds for every graph and every labelling, tried on many small ones.

Whatever is given, public entries raise nothing but errors of their own; no NaN comes
out; nodes numbered anew have their results under the new numbers; the order of edges,
and that some come twice, changes nothing.
"""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics.pairwise import cosine_similarity

from sktifa import (
    GNNClassifier,
    Graph,
    LabeledNodeKFold,
    LabeledNodeShuffleSplit,
    LabelPropagationTIG,
    NeighborSampler,
    SAINTTIFASampler,
    TIFAGCLClassifier,
    make_block_graph,
)
from sktifa.checks import check_sparse
from sktifa.contrast.pairs import graph_distances, sample_pairs
from sktifa.diagnostics import accuracy_by_gain, radial_decay
from sktifa.exceptions import GraphWarning, SktifaError
from sktifa.graph import as_graph
from sktifa.information.loss_weights import loss_weights
from sktifa.information.propagation import label_propagation
from sktifa.information.tig import (
    annotated_information,
    clarity,
    information_gain,
    intensity,
    label_distribution,
)
from sktifa.labels import encode_labels

# The same examples every time: what fails here fails everywhere.
many = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
few = settings(many, max_examples=15)

pytestmark = pytest.mark.filterwarnings("ignore")


# ----------------------------------------------------------------------- the inputs

WEIGHTS = st.sampled_from([0.25, 0.5, 1.0, 1.0, 3.0, 100.0])


@st.composite
def edge_lists(draw, largest=12):
    """The number of nodes, and edges with weights: repeated ones and loops too."""
    n = draw(st.integers(1, largest))
    nodes = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(nodes, nodes, WEIGHTS), max_size=3 * n))
    return n, edges


def graph_of(n, edges, features=None):
    ends = np.array([edge[:2] for edge in edges], dtype=np.int64).reshape(-1, 2).T
    weight = np.array([edge[2] for edge in edges])
    return Graph.from_edge_index(
        np.hstack([ends, ends[::-1]]),
        features,
        edge_weight=np.tile(weight, 2),
        n_nodes=n,
    )


@st.composite
def graphs(draw, largest=12):
    n, edges = draw(edge_lists(largest))
    kind = draw(st.sampled_from(["none", "dense", "sparse", "zero"]))
    seed = draw(st.integers(0, 2**20))
    features = None
    if kind != "none":
        rng = np.random.default_rng(seed)
        features = rng.normal(size=(n, draw(st.integers(1, 4))))
        features *= rng.random(features.shape) < 0.7
        features = 0 * features if kind == "zero" else features
        features = sp.csr_array(features) if kind == "sparse" else features
    return graph_of(n, edges, features)


@st.composite
def labelled(draw, largest=12):
    """A graph and its labels: up to three classes, some without."""
    graph = draw(graphs(largest))
    y = draw(hnp.arrays(np.int64, graph.n_nodes, elements=st.integers(-1, 2)))
    return graph, y


@st.composite
def renumbered(draw, what=labelled):
    """A graph with labels, and an order in which to number it anew."""
    graph, y = draw(what())
    return graph, y, np.array(draw(st.permutations(range(graph.n_nodes))))


def dense(features):
    return features.toarray() if sp.issparse(features) else np.asarray(features)


ANY_DTYPE = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(),
    hnp.unsigned_integer_dtypes(),
    hnp.floating_dtypes(),
    hnp.complex_number_dtypes(),
    hnp.datetime64_dtypes(),
    hnp.timedelta64_dtypes(),
    hnp.unicode_string_dtypes(max_len=3),
)
ANY_ARRAY = hnp.arrays(ANY_DTYPE, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
ANY_SQUARE = st.integers(0, 5).flatmap(lambda n: hnp.arrays(ANY_DTYPE, (n, n)))
ANYTHING = st.one_of(
    ANY_ARRAY,
    ANY_SQUARE,
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.one_of(st.integers(), st.floats(), st.none(), st.text(max_size=2))),
    st.lists(st.lists(st.integers(-2, 2), max_size=3), max_size=3),
    st.dictionaries(st.integers(), st.integers(), max_size=2),
    ANY_ARRAY.map(
        lambda a: np.ma.array(a, mask=np.arange(a.size).reshape(a.shape) == 1)
    ),
)


def ours(call):
    """Return what a call returns, or None after an error of ours; others pass."""
    try:
        return call()
    except SktifaError:
        return None


# --------------------------------------------------------------- the doors of Graph


@many
@given(ANYTHING, ANYTHING)
def test_a_graph_of_anything_is_well_formed_or_refused(adjacency, features):
    graph = ours(lambda: Graph(adjacency)) or ours(lambda: as_graph(adjacency))
    if graph is None:
        return
    again = Graph(graph.adjacency, graph.features, directed="error")
    assert again.fingerprint == graph.fingerprint
    assert np.isfinite(graph.adjacency.data).all()
    other = ours(lambda: graph.with_features(features))
    if other is not None:
        assert np.isfinite(dense(other.features)).all()


@many
@given(ANYTHING, ANYTHING, ANYTHING, ANYTHING)
def test_edges_of_anything_are_a_graph_or_refused(edges, features, weight, n):
    assume(not (isinstance(n, int) and n > 10**6))
    for given_weight in (None, weight):
        ours(
            lambda w=given_weight: Graph.from_edge_index(
                edges, features, edge_weight=w, n_nodes=n
            )
        )


@many
@given(hnp.arrays(st.sampled_from([np.int64, np.uint64, np.int8]), (2, 5)))
def test_edges_of_any_numbers_are_a_graph_or_refused(edges):
    graph = ours(lambda: Graph.from_edge_index(edges, n_nodes=7))
    inside = ((edges >= 0) & (edges < 7)).all()
    assert (graph is not None) == inside


@many
@given(
    st.sampled_from(["csr", "csc", "coo", "bsr", "lil", "dia", "dok"]),
    st.data(),
)
def test_a_broken_sparse_matrix_never_crashes(format, data):
    values = np.random.default_rng(0).random((6, 6)) < 0.4
    matrix = sp.csr_array(values.astype(float)).asformat(format).copy()
    parts = {
        "csr": ["data", "indices", "indptr"],
        "coo": ["data"],
        "lil": [],
        "dia": ["data", "offsets"],
        "dok": [],
    }
    for part in parts.get(format, parts["csr"]):
        array = getattr(matrix, part).ravel()
        if data.draw(st.booleans()):
            bad = data.draw(
                st.one_of(
                    hnp.arrays(
                        st.sampled_from([np.int32, np.int64, np.float64]),
                        st.integers(0, array.size + 2),
                        elements=st.integers(-8, 2**31 - 1),
                    ),
                    st.just(array[: array.size // 2]),
                    st.just(array[::-1]),
                )
            )
            setattr(matrix, part, bad)
    if format == "coo" and data.draw(st.booleans()):
        shift = data.draw(st.integers(-(2**31), 2**31 - 1))
        matrix.coords = tuple(c.astype(np.int64) + shift for c in matrix.coords)
    ours(lambda: Graph(matrix))
    ours(lambda: Graph(np.eye(6), matrix))
    checked = ours(lambda: check_sparse(matrix, "it"))
    if checked is not None:
        assert checked.has_canonical_format
        assert ((0 <= checked.indices) & (checked.indices < 6)).all()


@many
@given(edge_lists(), st.randoms(use_true_random=False))
def test_order_and_duplicates_of_edges_do_not_matter(made, random):
    n, edges = made
    once = graph_of(n, edges)
    again = [*edges, *random.choices(edges, k=3)] if edges else []
    random.shuffle(again)
    turned = [(j, i, w) if random.random() < 0.5 else (i, j, w) for i, j, w in again]
    assert graph_of(n, turned).fingerprint == once.fingerprint


@many
@given(graphs())
def test_every_form_of_a_graph_is_the_same_graph(graph):
    for made in (
        Graph(graph.adjacency.toarray(), graph.features),
        Graph(graph.adjacency.tocsc(), sp.coo_array(graph.features)),
        Graph(graph.adjacency.tocoo(), graph.features),
        Graph(sp.lil_array(graph.adjacency), graph.features),
        Graph(torch.from_numpy(graph.adjacency.toarray()).to_sparse(), graph.features),
    ):
        assert (made.adjacency != graph.adjacency).nnz == 0
        assert_array_equal(dense(made.features), dense(graph.features))
    assert Graph.from_pyg(graph.to_pyg()).n_edges == graph.n_edges
    back = Graph.from_networkx(graph.to_networkx(), "x")
    assert (back.adjacency != graph.adjacency).nnz == 0


@many
@given(graphs(), ANYTHING)
def test_selecting_by_anything_is_as_in_an_array_or_refused(graph, index):
    selected = ours(lambda: graph[index])
    if selected is not None:
        expected = np.arange(graph.n_nodes)[
            np.asarray(index, dtype=None if np.size(index) else int)
        ]
        assert_array_equal(selected.nodes, np.atleast_1d(expected))


@many
@given(graphs(), st.data())
def test_selecting_is_as_in_an_array(graph, data):
    n = graph.n_nodes
    index = data.draw(
        st.one_of(
            hnp.arrays(np.int64, st.integers(0, 9), elements=st.integers(-n, n - 1)),
            hnp.arrays(bool, n),
            st.slices(n),
        )
    )
    if not isinstance(index, slice) and index.dtype == np.int64:
        assume(not (len(index) == n and np.isin(index, [0, 1]).all()))
    nodes = np.arange(n)[index]
    assert_array_equal(graph[index].nodes, nodes)
    again = graph[nodes][::-1]
    assert_array_equal(again.nodes, nodes[::-1])


@many
@given(renumbered())
def test_a_renumbered_graph_is_the_subgraph_in_that_order(made):
    graph, _, order = made
    adjacency = graph.adjacency[order][:, order]
    assert (
        Graph(adjacency, graph.features[order]).fingerprint
        == graph.subgraph(order).fingerprint
    )
    back = np.argsort(order)
    assert graph.subgraph(order).subgraph(back).fingerprint == graph.fingerprint


# ---------------------------------------------------------------------- information


@many
@given(renumbered(), st.sampled_from(["column", "row", "symmetric"]))
def test_propagation_follows_the_nodes(made, normalization):
    graph, y, order = made
    sources = (y[:, None] == np.arange(3)).astype(float)
    adjacency = graph.adjacency
    there = label_propagation(adjacency, sources, normalization=normalization)
    anew = adjacency[order][:, order]
    here = label_propagation(anew, sources[order], normalization=normalization)
    assert np.isfinite(there).all()
    assert (there >= 0).all()
    assert_allclose(here, there[order], atol=1e-5)
    twice = label_propagation(adjacency, 2 * sources, normalization=normalization)
    assert_allclose(twice, 2 * there, atol=1e-5)


@many
@given(renumbered(), st.sampled_from(["sum", "mean"]))
def test_information_follows_the_nodes(made, aggregate):
    graph, y, order = made
    assume((y >= 0).any())
    part = graph.subgraph(order)
    there = annotated_information(graph, y, 3, aggregate=aggregate)
    here = annotated_information(part, y[order], 3, aggregate=aggregate)
    assert_allclose(here, there[order], atol=1e-5)
    for made_of in (intensity, clarity, information_gain, label_distribution):
        assert np.isfinite(made_of(there)).all()
        assert_allclose(made_of(here), made_of(there)[order], atol=2e-3)
    assert_allclose(label_distribution(there).sum(axis=1), 1, rtol=1e-5)


@many
@given(renumbered())
def test_columns_of_the_transformer_follow_the_nodes(made):
    graph, y, order = made
    assume(len(np.unique(y[y >= 0])) >= 2)
    part = graph.subgraph(order)
    there = LabelPropagationTIG(cv=None, columns="raw").fit(graph, y)
    here = LabelPropagationTIG(cv=None, columns="raw").fit(part, y[order])
    columns = there.transform(graph)
    assert np.isfinite(columns).all()
    assert_allclose(here.transform(part), columns[order], atol=1e-5)
    assert np.isfinite(LabelPropagationTIG().fit_transform(graph, y)).all()


@many
@given(
    hnp.arrays(np.float64, st.integers(1, 20), elements=st.floats(-1e3, 1e3)), st.data()
)
def test_loss_weights_follow_the_nodes(gain, data):
    order = np.array(data.draw(st.permutations(range(len(gain)))))
    there = loss_weights(gain)
    assert_allclose(loss_weights(gain[order]), there[order])
    assert np.isfinite(there).all()
    assert (there >= 0.2).all()
    assert (there <= 2.2).all()


@many
@given(
    hnp.arrays(np.float64, st.integers(2, 20), elements=st.floats(0, 1)),
    st.integers(1, 4),
    st.data(),
)
def test_bins_of_gain_follow_the_nodes(gain, n_bins, data):
    order = np.array(data.draw(st.permutations(range(len(gain)))))
    correct = np.arange(len(gain)) % 3 == 0
    there = accuracy_by_gain(gain, correct, n_bins=n_bins)
    assert_allclose(accuracy_by_gain(gain[order], correct[order], n_bins=n_bins), there)
    cells = radial_decay(gain, -gain, correct, n_bins=n_bins)
    assert cells.count.sum() == np.count_nonzero(gain)


# ---------------------------------------------------------------------------- pairs


def pair_distances(graph, p, hop_weight, feature_weight):
    """Eq. 13 by its words, all pairs at once."""
    hops = graph_distances(graph.features, graph.adjacency).hops.numpy().astype(float)
    log = np.log(np.maximum(p, 1e-12))
    divergence = (p * log).sum(axis=1)[:, None] - p @ log.T
    cosine = 1 - cosine_similarity(dense(graph.features).astype(np.float64))
    total = np.zeros_like(divergence)
    for weight, part, noise in (
        (1.0, divergence, 1e-12),
        (hop_weight, hops, 0),
        (feature_weight, cosine, 1e-6),
    ):
        part = np.where(np.eye(len(part), dtype=bool), np.nan, part)
        low = np.nanmin(part, axis=1, keepdims=True)
        width = np.nanmax(part, axis=1, keepdims=True) - low
        with np.errstate(divide="ignore", invalid="ignore"):
            total += np.where(width > noise, weight * (part - low) / width, 0.0)
    return total


@many
@given(
    renumbered(),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([0.0, 0.75]),
    st.integers(0, 2**20),
)
def test_pairs_are_the_nearest_and_follow_the_nodes(made, hops, features, seed):
    graph, _, order = made
    n = graph.n_nodes
    assume(n >= 2)
    p = np.random.default_rng(seed).dirichlet([0.5] * 3, size=n)
    options = {
        "hop_weight": hops,
        "feature_weight": features,
        "n_positives": n - 1,
        "negative_ranks": (0, 1),
    }
    near, _ = sample_pairs(graph.features, graph.adjacency, p, **options)
    distance = pair_distances(graph, p, hops, features)
    rows = np.arange(n)[:, None]
    expected = np.sort(np.where(np.eye(n, dtype=bool), np.inf, distance))[:, : n - 1]
    assert_array_equal(np.sort(near), np.argsort(~np.eye(n, dtype=bool))[:, 1:])
    assert_allclose(distance[rows, near], expected, atol=1e-5)
    part = graph.subgraph(order)
    anew, _ = sample_pairs(part.features, part.adjacency, p[order], **options)
    assert_allclose(distance[order[:, None], order[anew]], expected[order], atol=1e-5)


# ------------------------------------------------------------- labels and splitters


@many
@given(
    st.lists(
        st.one_of(
            st.integers(-2, 3),
            st.sampled_from(["a", "b", None, float("nan"), True, 1.5]),
        ),
        max_size=8,
    )
)
def test_labels_come_back_or_are_refused(labels):
    encoded = ours(lambda: encode_labels(labels))
    if encoded is None:
        return
    codes, classes = encoded
    assert len(set(classes.tolist())) == len(classes)
    for label, code in zip(labels, codes, strict=True):
        missing = label is None or label != label or label == -1
        assert (code == -1) == missing
        if not missing:
            assert classes[code] == label


@many
@given(ANYTHING)
def test_labels_of_anything_are_encoded_or_refused(labels):
    ours(lambda: encode_labels(labels))


@many
@given(labelled(), st.integers(2, 3), st.integers(1, 2))
def test_splits_part_the_labelled_nodes(made, n_splits, per_class):
    graph, y = made
    splitters = (
        LabeledNodeKFold(n_splits),
        LabeledNodeShuffleSplit(
            n_splits, train_per_class=per_class, val_per_class=1, random_state=0
        ),
    )
    for splitter in splitters:
        for train, test in ours(lambda s=splitter: list(s.split(graph, y))) or []:
            assert not np.intersect1d(train, test).size
            assert (y[test] >= 0).all()
            assert set(np.flatnonzero(y < 0)) <= set(train)


# ------------------------------------------------------------------------- samplers


@few
@given(labelled())
def test_subgraphs_are_parts_of_the_graph(made):
    graph, y = made
    samplers = (
        SAINTTIFASampler(3, walk_length=2, presample_epochs=1, random_state=0),
        NeighborSampler((2, 2), batch_size=3, seeds="all", random_state=0),
    )
    for sampler in samplers:
        if ours(lambda s=sampler: s.fit(graph, y)) is None:
            continue
        for part in sampler.epoch():
            nodes = part.nodes.cpu().numpy()
            assert ((nodes >= 0) & (nodes < graph.n_nodes)).all()
            row, col = nodes[part.row.cpu().numpy()], nodes[part.col.cpu().numpy()]
            assert (graph.adjacency.toarray()[row, col] > 0).all()


# ---------------------------------------------------------------------- classifiers

QUICK = {
    "max_iter": 2,
    "hidden_size": 4,
    "random_state": 0,
    "device": "cpu",
    "early_stopping": False,
}


@few
@given(labelled(), st.sampled_from([None, "tifa", "uniform"]))
def test_probabilities_are_some_or_the_data_are_refused(made, pairing):
    graph, y = made
    fit = GNNClassifier(**QUICK).fit
    if pairing is not None:
        fit = TIFAGCLClassifier(pairing=pairing, **QUICK).fit
    model = ours(lambda: fit(graph, y))
    if model is None:
        assert len(np.unique(y[y >= 0])) < 2
        return
    proba = model.predict_proba(graph)
    assert np.isfinite(proba).all()
    assert_allclose(proba.sum(axis=1), 1, rtol=1e-5)
    assert set(model.predict(graph)) <= set(y[y >= 0])


@few
@given(renumbered())
def test_a_model_without_chance_follows_the_nodes(made):
    graph, y, order = made
    assume(len(np.unique(y[y >= 0])) >= 2)
    # A feature of its own for every node has weights of its own, too.
    assume(graph.n_features <= 4)
    part = graph.subgraph(order)
    there = GNNClassifier(dropout=0.0, **QUICK).fit(graph, y).predict_proba(graph)
    here = GNNClassifier(dropout=0.0, **QUICK).fit(part, y[order]).predict_proba(part)
    # Adam takes whole steps where a gradient is rounding alone.
    assert_allclose(here, there[order], atol=5e-3)


# ------------------------------------------------------------------------ made graphs


@many
@given(
    st.integers(1, 60),
    st.integers(2, 5),
    st.floats(0, 10),
    st.floats(0, 1),
    st.floats(2.01, 10),
    st.integers(0, 2**31 - 1),
)
def test_block_graphs_are_well_formed(n, k, degree, homophily, exponent, seed):
    made = make_block_graph(
        n,
        k,
        average_degree=degree,
        homophily=homophily,
        degree_exponent=exponent,
        random_state=seed,
    )
    graph = made.graph
    with warnings.catch_warnings():
        warnings.simplefilter("error", GraphWarning)
        again = Graph(graph.adjacency, graph.features, directed="error")
    assert again.fingerprint == graph.fingerprint
    assert set(made.target) <= set(range(k))


@many
@given(
    st.dictionaries(
        st.sampled_from(
            ["n_nodes", "n_classes", "average_degree", "homophily", "n_features"]
        ),
        st.one_of(st.none(), st.text(max_size=2), st.floats(), st.integers()),
    )
)
def test_block_graphs_of_anything_are_made_or_refused(parameters):
    for name in ("n_nodes", "n_classes", "n_features"):
        assume(
            not 1000 < (parameters.get(name) or 0) < 10**13
            if isinstance(parameters.get(name), int)
            else True
        )
    ours(lambda: make_block_graph(**{"n_nodes": 20, **parameters}, random_state=0))
