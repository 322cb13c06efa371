"""Pictures: the numbers behind them, what is drawn, and that `plt.show()` shows it."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.neural_network import MLPClassifier

from sktifa import (
    GNNClassifier,
    Graph,
    LabelPropagationTIG,
    TIFAGCLClassifier,
    make_block_graph,
)
from sktifa.diagnostics import accuracy_by_gain, radial_decay
from sktifa.displays import (
    EmbeddingDisplay,
    GainBinsDisplay,
    GainMapDisplay,
    InformationPlaneDisplay,
    PairQualityDisplay,
    RadialDecayDisplay,
    SearchDisplay,
    TrainingCurveDisplay,
)
from sktifa.displays.layout import spring_layout
from sktifa.displays.style import looks
from sktifa.exceptions import (
    LabelError,
    MissingPackageError,
    NodeIndexError,
    ParameterError,
)
from sktifa.information.tig import annotated_information, clarity, intensity

pytestmark = pytest.mark.filterwarnings(
    "error",
    # Older versions of matplotlib call newer ones of pyparsing by old names.
    "ignore:.*deprecated.* use:DeprecationWarning",
)
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def headless():
    """Draw without a screen, and close what was drawn."""
    plt.close("all")  # what other tests have left
    plt.switch_backend("Agg")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    return make_block_graph(200, 3, random_state=0)


@pytest.fixture(scope="module")
def train():
    return np.arange(0, 200, 5)


@pytest.fixture(scope="module")
def models(data, train):
    shared = {"max_iter": 8, "random_state": 0, "device": "cpu"}
    val = np.arange(1, 200, 5)
    return {
        name: model.fit(
            data.graph[train],
            data.target[train],
            X_val=data.graph[val],
            y_val=data.target[val],
        )
        for name, model in (
            ("GCN", GNNClassifier(**shared)),
            ("TIFA", TIFAGCLClassifier(**shared)),
        )
    }


class Search:
    """A fitted search with known scores."""

    multimetric_ = True
    refit = "accuracy"

    def __init__(self, params, scores):
        self.cv_results_ = {
            "params": params,
            "mean_test_accuracy": np.array(scores),
            "mean_test_loss": -np.array(scores),
        }


@pytest.fixture
def search():
    params = [
        {"rate": rate, "pairing": pairing, "fixed": 1, "ranks": (0, 3 + i % 2)}
        for i, (rate, pairing) in enumerate(
            (r, p) for r in (0.1, 0.001) for p in ("tifa", None)
        )
    ]
    return Search(params, [0.5, 0.75, 0.25, np.nan])


def _all_displays(models, data, train, search):
    graph, y = data.graph, data.target
    gcn, tifa = models["GCN"], models["TIFA"]
    return [
        GainBinsDisplay.from_estimator(models, graph, y),
        InformationPlaneDisplay.from_estimator(gcn, graph, y, labeled=train),
        RadialDecayDisplay.from_estimator(gcn, graph, y, labeled=train, n_bins=3),
        TrainingCurveDisplay.from_estimator(tifa),
        PairQualityDisplay.from_graph(graph, y, labeled=train),
        EmbeddingDisplay.from_estimator(gcn, graph, y),
        GainMapDisplay.from_estimator(tifa, graph, labeled=train),
        SearchDisplay.from_estimator(search),
    ]


# --------------------------------------------------------------------- what all do


def test_all_are_shown_by_pyplot_and_have_labelled_axes(models, data, train, search):
    for display in _all_displays(models, data, train, search):
        before = set(plt.get_fignums())
        assert display.plot() is display
        (number,) = set(plt.get_fignums()) - before
        assert plt.figure(number) is display.figure_
        display.figure_.canvas.draw()
        if isinstance(display, GainMapDisplay):
            continue  # a drawn graph has no axes
        axes = getattr(display, "axes_", None)
        for ax in [display.ax_] if axes is None else axes.flat:
            below = (
                axes is None or ax in axes[-1:] or isinstance(display, SearchDisplay)
            )
            assert not ax.get_visible() or bool(ax.get_xlabel()) == below
        first = display.ax_ if axes is None else axes.flat[0]
        assert first.get_ylabel()


def test_all_draw_on_given_axes(models, data, train, search):
    for display in _all_displays(models, data, train, search):
        _, ax = plt.subplots()
        n_figures = len(plt.get_fignums())
        display.plot(ax=ax)
        assert display.ax_ is ax and display.figure_ is ax.figure
        assert len(plt.get_fignums()) == n_figures
        ax.figure.canvas.draw()


def test_legends_cover_no_data(models, data, train, search):
    for display in _all_displays(models, data, train, search)[:-1]:
        display.plot()
        display.figure_.canvas.draw()
        legend = display.ax_.get_legend()
        if legend is not None:
            inside = display.ax_.get_window_extent()
            assert not inside.overlaps(legend.get_window_extent())


def test_without_matplotlib_the_error_names_the_extra():
    # In a process of its own, where matplotlib can't be imported.
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from sktifa.displays import GainBinsDisplay\n"
        "display = GainBinsDisplay.from_predictions([1, 2], [0, 1], [0, 1], n_bins=2)\n"
        "display.plot()"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert "MissingPackageError: pictures need matplotlib" in run.stderr
    assert "pip install 'sktifa[plot]'" in run.stderr
    assert issubclass(MissingPackageError, ImportError)


def test_looks_differ():
    assert len(set(looks(49))) == 49


# -------------------------------------------------------------------------- by gain


def test_gain_bins_are_those_of_the_predictions(models, data):
    graph, y = data.graph[50:], data.target[50:]
    display = GainBinsDisplay.from_estimator(models, graph, y, n_bins=4)
    gain = models["TIFA"].gain_[50:]
    for name, model in models.items():
        expected = accuracy_by_gain(gain, model.predict(graph) == y, 4)
        np.testing.assert_array_equal(display.accuracies[name], expected)
    lines = {
        line.get_label(): line.get_ydata() for line in display.plot().ax_.get_lines()
    }
    np.testing.assert_array_equal(lines["GCN"], display.accuracies["GCN"])
    above = display.plot(baseline="GCN").ax_.get_lines()[-1].get_ydata()
    gained = display.accuracies["TIFA"] - display.accuracies["GCN"]
    np.testing.assert_allclose(above, 100 * gained)


def test_nodes_without_a_label_do_not_count():
    gain, y = np.arange(8), np.array(["a", None, "a", "b", "b", None, "a", "b"], object)
    right = np.array(["a", "x", "a", "b", "b", "x", "a", "b"])
    display = GainBinsDisplay.from_predictions(gain, y, {"": right}, n_bins=2)
    np.testing.assert_array_equal(display.accuracies[""], [1, 1])
    assert display.plot().ax_.get_legend() is None


def test_gain_bins_refuse_what_can_not_be_compared(models, data):
    with pytest.raises(LabelError, match="can't be compared"):
        GainBinsDisplay.from_predictions([1, 2], [0, 1], {"GCN": ["0", "1"]})
    with pytest.raises(ParameterError, match="gain has shape"):
        GainBinsDisplay.from_predictions([1, 2, 3], [0, 1], {"GCN": [0, 1]})
    with pytest.raises(ParameterError, match="predictions are empty"):
        GainBinsDisplay.from_predictions([1, 2], [0, 1], {})
    with pytest.raises(ParameterError, match=r"baseline='SAGE'.*\['GCN', 'TIFA'\]"):
        GainBinsDisplay.from_estimator(models, data.graph, data.target).plot(
            baseline="SAGE"
        )
    with pytest.raises(ParameterError, match="give gain="):
        GainBinsDisplay.from_estimator(models["GCN"], data.graph, data.target)
    with pytest.raises(NotFittedError):
        GainBinsDisplay.from_estimator(GNNClassifier(), data.graph, data.target)


def test_gain_of_a_model_fitted_on_an_array(data, train):
    rows = np.array(data.graph.features)
    y = np.where(np.isin(np.arange(200), train), data.target, -1)
    model = TIFAGCLClassifier(max_iter=3, random_state=0, device="cpu").fit(rows, y)
    display = GainBinsDisplay.from_estimator(model, rows, data.target, n_bins=2)
    assert display.accuracies[""].shape == (2,)
    with pytest.raises(ParameterError, match="give gain="):
        GainBinsDisplay.from_estimator(model, rows[:50], data.target[:50])


# ------------------------------------------------------------- intensity and clarity


def test_planes_show_the_nodes_that_training_did_not_see(models, data, train):
    graph, y = data.graph, data.target
    model = models["GCN"]
    mask = np.isin(np.arange(200), train)
    display = InformationPlaneDisplay.from_estimator(model, graph, y, labeled=mask)
    wrong = (model.predict(graph) != y)[~mask]
    np.testing.assert_array_equal(display.correct, ~wrong)
    right_dots, wrong_dots = display.plot().ax_.collections
    assert len(wrong_dots.get_offsets()) == wrong.sum() > 0
    assert len(right_dots.get_offsets()) == (~wrong).sum()
    # The same numbers by hand: codes of training alone make the information.
    information = annotated_information(graph, np.where(mask, y, -1), 3)[~mask]
    order = np.argsort(-information.max(axis=1))
    ranks = np.empty(160)
    ranks[order] = np.arange(160) / 160
    reached = information.max(axis=1) > 0
    assert reached.all()
    np.testing.assert_allclose(display.intensity_rank, ranks, atol=0.02)


def test_selections_and_named_labels_are_understood(data, train, models):
    graph = Graph(
        data.graph.adjacency,
        data.graph.features,
        node_names=[f"n{i}" for i in range(200)],
    )
    labels = pd.Series(data.target, index=graph.node_names).sample(
        frac=1, random_state=0
    )
    named = InformationPlaneDisplay.from_estimator(
        models["GCN"], graph, labels, labeled=train
    )
    plain = InformationPlaneDisplay.from_estimator(
        models["GCN"], data.graph, data.target, labeled=train
    )
    np.testing.assert_array_equal(named.correct, plain.correct)
    half = np.arange(0, 200, 2)
    part = InformationPlaneDisplay.from_estimator(
        models["GCN"], graph[half], data.target[half], labeled=np.arange(30)
    )
    assert len(part.correct) == 70


@pytest.mark.parametrize(
    ("labeled", "error", "message"),
    [
        ([500], NodeIndexError, "no node at position 500"),
        ([0, 1] * 100, NodeIndexError, "zeros and ones"),
        ([], ParameterError, "names no node with a label"),
    ],
)
def test_labeled_nodes_must_be_there(labeled, error, message, data, models):
    with pytest.raises(error, match=message):
        InformationPlaneDisplay.from_estimator(
            models["GCN"],
            data.graph,
            data.target,
            labeled=labeled,
        )


def test_decay_draws_errors_and_gains(models, data, train):
    graph, y = data.graph, data.target
    rest = ~np.isin(np.arange(200), train)
    information = annotated_information(graph, np.where(rest, -1, y), 3)[rest]
    right = {name: (m.predict(graph) == y)[rest] for name, m in models.items()}
    place = intensity(information), clarity(information)
    errors = RadialDecayDisplay.from_estimator(
        models["GCN"], graph, y, labeled=train, n_bins=4
    )
    expected = 1 - radial_decay(*place, right["GCN"], 4).accuracy
    np.testing.assert_allclose(errors.values, expected)
    gains = RadialDecayDisplay.from_estimator(
        models["TIFA"], graph, y, labeled=train, baseline=models["GCN"], n_bins=4
    )
    gained = right["TIFA"].astype(float) - right["GCN"]
    np.testing.assert_allclose(gains.values, radial_decay(*place, gained, 4).accuracy)
    assert (gains.kind, errors.kind) == ("gain", "error")
    for display in (errors, gains):
        mesh = display.plot().ax_.collections[0]
        drawn = mesh.get_array().filled(np.nan).reshape(4, 4)
        # Intensity, whose ranks are the rows, runs to the right.
        np.testing.assert_array_equal(drawn, display.values.T)
    low, high = mesh.get_clim()
    assert low == -high


# --------------------------------------------------------------------------- training


def test_training_curves_are_those_of_the_fit(models):
    model = models["TIFA"]
    display = TrainingCurveDisplay.from_estimator(model).plot()
    losses, accuracy = display.axes_
    lines = {line.get_label(): line for line in losses.get_lines()}
    np.testing.assert_array_equal(lines["training"].get_ydata(), model.loss_curve_)
    np.testing.assert_array_equal(lines["training"].get_xdata(), np.arange(1, 9))
    np.testing.assert_array_equal(
        lines["validation"].get_ydata(), model.validation_losses_
    )
    assert lines["validation"].get_xdata()[0] == 0
    assert set(lines["model kept"].get_xdata()) == {model.best_iter_}
    np.testing.assert_array_equal(
        accuracy.get_lines()[0].get_ydata(), model.validation_scores_
    )


def test_training_curves_without_validation_and_of_others(data):
    model = GNNClassifier(max_iter=3, device="cpu", early_stopping=False)
    display = TrainingCurveDisplay.from_estimator(model.fit(data.graph, data.target))
    assert len(display.plot().axes_) == 1
    other = MLPClassifier((4,), solver="sgd", random_state=0, max_iter=2)
    with pytest.warns(UserWarning, match="Maximum iterations"):
        other.fit(np.eye(4), [0, 1, 0, 1])
    assert len(TrainingCurveDisplay.from_estimator(other).plot().loss) == 2
    with pytest.raises(NotFittedError):
        TrainingCurveDisplay.from_estimator(GNNClassifier())
    with pytest.raises(ParameterError, match="LabelPropagationTIG has no loss_curve_"):
        TrainingCurveDisplay.from_estimator(
            LabelPropagationTIG().fit(data.graph, data.target)
        )


# ------------------------------------------------------------ pairs, embeddings, maps


def test_pairs_are_drawn_bin_by_bin(data, train):
    display = PairQualityDisplay.from_graph(
        data.graph, data.target, labeled=train, n_bins=5
    ).plot()
    heights = [bar.get_height() for bar in display.ax_.patches]
    np.testing.assert_array_equal(heights, display.quality.same_class)
    edges, overall = (line.get_ydata()[0] for line in display.ax_.get_lines())
    assert (edges, overall) == (display.quality.neighbors, display.quality.overall)


def test_embeddings_are_coloured_by_class(models, data):
    y = np.array(["x", "y", "z"], dtype=object)[data.target]
    y[:10] = None
    display = EmbeddingDisplay.from_estimator(models["GCN"], data.graph, y)
    assert display.positions.shape == (190, 2)
    centred = models["GCN"].embed(data.graph)[10:]
    centred = centred - centred.mean(axis=0)
    singular = np.linalg.svd(centred, compute_uv=False)[:2]
    np.testing.assert_allclose(
        np.linalg.norm(display.positions, axis=0), singular, rtol=1e-3
    )
    groups = display.plot().ax_.collections
    sizes = {group.get_label(): len(group.get_offsets()) for group in groups}
    assert sizes == {label: np.sum(y == label) for label in "xyz"}


def test_embeddings_by_tsne_of_few_and_of_too_many():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    embedding = rng.normal(size=(60, 4)) + 8 * y[:, None]
    display = EmbeddingDisplay.from_embedding(embedding, y, method="tsne", max_nodes=40)
    one, other = (display.positions[display.y == c].mean(axis=0) for c in (0, 1))
    spread = max(display.positions[display.y == c].std() for c in (0, 1))
    assert len(display.y) == 40 and np.linalg.norm(one - other) > spread
    assert EmbeddingDisplay.from_embedding([[1.0], [2.0]], [0, 1]).plot().ax_


def test_embeddings_that_are_none(data):
    with pytest.raises(ParameterError, match="'pca' or 'tsne'"):
        EmbeddingDisplay.from_embedding(np.eye(3), [0, 1, 1], method="umap")
    with pytest.raises(ParameterError, match="each of the 2 labels"):
        EmbeddingDisplay.from_embedding(np.eye(3), [0, 1])
    with pytest.raises(ParameterError, match="neither embed nor transform"):
        EmbeddingDisplay.from_estimator(
            MLPClassifier((2,), max_iter=500, tol=1).fit(np.eye(2), [0, 1]),
            np.eye(2),
            [0, 1],
        )


def test_maps_colour_by_rank_and_mark_labels():
    graph = Graph(np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1))
    display = GainMapDisplay.from_gain(
        graph, [0.3, 0.1, 0.0, 0.4, 0.2], labeled=[3]
    ).plot()
    lines, dots, unreached, stars = display.ax_.collections
    assert len(lines.get_segments()) == 4
    # Of four nodes that are reached, 0.1, 0.2 and 0.3 are the three least.
    np.testing.assert_allclose(dots.get_array(), [0.5, 0, 0.25])
    np.testing.assert_allclose(unreached.get_offsets(), display.positions[[2]])
    np.testing.assert_allclose(stars.get_offsets(), display.positions[[3]])


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"gain": np.ones(4)}, ParameterError, "each of the graph's 5 nodes"),
        ({"positions": np.ones((5, 3))}, ParameterError, r"shape \(5, 2\)"),
        ({"labeled": [7]}, NodeIndexError, "no node at position 7"),
    ],
)
def test_maps_refuse_what_does_not_fit(changed, error, message):
    graph = Graph(np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1))
    with pytest.raises(error, match=message):
        GainMapDisplay.from_gain(graph, **({"gain": np.ones(5)} | changed))


def test_maps_need_a_gain(models, data):
    with pytest.raises(ParameterError, match="GNNClassifier has no gain_"):
        GainMapDisplay.from_estimator(models["GCN"], data.graph)


def test_springs_keep_edges_short_and_nodes_apart():
    made = make_block_graph(400, 4, homophily=0.95, random_state=0)
    position = spring_layout(made.graph)
    assert np.linalg.norm(position, axis=1).max() <= 1.2
    row, col = made.graph.adjacency.tocoo().coords
    edges = np.linalg.norm(position[row] - position[col], axis=1)
    rng = np.random.default_rng(0)
    i, j = rng.integers(400, size=(2, 4000))
    others = np.linalg.norm((position[i] - position[j])[i != j], axis=1)
    assert edges.mean() < 0.6 * others.mean()
    # No two nodes in one spot.
    assert np.quantile(others, 0.01) > 0.01
    np.testing.assert_array_equal(position, spring_layout(made.graph))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_springs_place_tiny_graphs_and_graphs_without_edges(n):
    position = spring_layout(Graph(sparse.csr_array((n, n)), np.ones((n, 1))))
    assert position.shape == (n, 2) and np.isfinite(position).all()


# ---------------------------------------------------------------------------- search


def test_marginal_means_leave_failed_candidates_out(search):
    display = SearchDisplay.from_estimator(search)
    assert set(display.values) == {"rate", "pairing", "ranks"}
    at, means = display.marginal("rate")
    assert at == [0.001, 0.1]
    np.testing.assert_allclose(means, [0.25, 0.625])
    at, means = display.marginal("pairing")
    assert dict(zip(at, means, strict=True)) == {"tifa": 0.375, None: 0.75}
    assert SearchDisplay.from_estimator(search, "loss").scores[0] == -0.5


def test_errors_name_the_metrics_there_are(search):
    with pytest.raises(ParameterError, match=r"metric='f1'.*\['accuracy', 'loss'\]"):
        SearchDisplay.from_estimator(search, "f1")
    with pytest.raises(NotFittedError, match="fit it first"):
        SearchDisplay.from_estimator(object())


def test_many_values_are_binned():
    rng = np.random.default_rng(0)
    values = rng.permutation(100) / 100
    search = Search([{"x": x} for x in values], 2 * values)
    at, means = SearchDisplay.from_estimator(search).marginal("x", n_bins=5)
    np.testing.assert_allclose(means, 2 * np.array(at))
    assert at == pytest.approx([0.095, 0.295, 0.495, 0.695, 0.895])


def test_searches_have_a_panel_for_each_hyper_parameter(search):
    display = SearchDisplay.from_estimator(search).plot(n_columns=2)
    shown = [ax.get_xlabel() for ax in display.axes_.flat if ax.get_visible()]
    assert shown == ["pairing", "ranks", "rate"]
    assert display.axes_[0, 0].get_ylabel() == "validation accuracy"


def test_what_mattered_most_is_drawn_on_axes_that_are_given():
    params = [{"a": a, "b": b} for a in (1, 2) for b in (1, 2)]
    display = SearchDisplay.from_estimator(Search(params, [0.1, 0.9, 0.2, 0.8]))
    _, ax = plt.subplots()
    display.plot(ax)
    assert ax.get_xlabel() == "b"
    assert ax.lines[-1].get_ydata().tolist() == pytest.approx([0.15, 0.85])
