"""The exponential race against a literal, slow rendering of Algorithm 2.

Frequencies are compared by two-sample tests under fixed seeds. Each test function may
fail by chance with probability ALPHA at most (Bonferroni over its comparisons).
"""

import pickle
import threading
import warnings
from collections import Counter

import networkx as nx
import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from sktifa.contrast.perturbation import GraphPerturber, paired
from sktifa.exceptions import (
    GraphError,
    NotEnoughMemoryError,
    ParameterError,
    PerturbationWarning,
)

ALPHA = 1e-3


def _karate():
    return nx.to_numpy_array(nx.karate_club_graph(), weight=None)


def _hub():
    """A hub, a path, leaves, a triangle and three isolated nodes: 26 in all."""
    graph = nx.star_graph(14)
    nx.add_path(graph, range(10, 20))
    nx.add_cycle(graph, range(20, 23))
    graph.add_nodes_from(range(23, 26))
    return nx.to_numpy_array(graph)


def _csr(dense):
    return csr_array(np.asarray(dense, dtype=np.float32))


def _weights(n):
    return np.random.default_rng(7).uniform(0.2, 2.2, n)


def _algorithm_2(
    A,
    w,
    rng,
    *,
    sharpness=1.0,
    perturbed_nodes=1.0,
    perturbation_rate=None,
    edges_added=1,
    edges_removed=2,
    decay=0.5,
    decay_hops=1,
):
    """Algorithm 2 line by line, as READING 11-14 settles it, on dense matrices."""
    n = len(A)
    hops = np.linalg.matrix_power(A + np.eye(n), decay_hops) > 0
    Ap = A.copy()
    P = np.exp(w * sharpness)
    P = P / P.sum()
    order = []
    limit = round(perturbed_nodes * n)
    sigma = np.inf
    if perturbation_rate is not None:
        sigma = np.sqrt(2 * perturbation_rate * A.sum() / 2)
    gap = 0.0
    while gap < sigma and len(order) < limit:
        i = rng.choice(n, p=P)
        order.append(i)
        others = np.flatnonzero((Ap[i] == 0) & (np.arange(n) != i))
        chosen = rng.choice(others, min(edges_added, len(others)), replace=False)
        Ap[i, chosen] = Ap[chosen, i] = 1
        neighbours = np.flatnonzero(Ap[i])
        count = min(edges_removed, len(neighbours))
        chosen = rng.choice(neighbours, count, replace=False)
        Ap[i, chosen] = Ap[chosen, i] = 0
        P[i] = 0
        near = hops[i].copy()
        near[i] = False
        P[near] *= decay
        if P.sum() > 0:
            P = P / P.sum()
        gap = np.sqrt(((Ap - A) ** 2).sum())
    return np.array(order), Ap


def _apply(dense, view):
    """Perturbed dense matrix, checking that every change is one."""
    A = _csr(dense)
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    Ap = dense.copy()
    u, v = rows[view.removed_arcs], A.indices[view.removed_arcs]
    assert (Ap[u, v] != 0).all()
    Ap[u, v] = 0
    assert (Ap == Ap.T).all()  # both directions are gone
    for a, b in view.added_edges.T:
        assert a != b and dense[a, b] == 0 and Ap[a, b] == 0
        Ap[a, b] = Ap[b, a] = 1
    return Ap


CASES = {
    "defaults": (_karate, {"perturbed_nodes": 0.4}),
    "edge limit": (_karate, {"perturbation_rate": 0.3, "perturbed_nodes": 1.0}),
    "hub, two hops": (
        _hub,
        {"perturbed_nodes": 0.5, "decay": 0.2, "decay_hops": 2, "sharpness": 2.0},
    ),
    "hub, many edges": (
        _hub,
        {"perturbed_nodes": 0.7, "edges_added": 4, "edges_removed": 3, "decay": 1.0},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_frequencies_are_those_of_algorithm_2(case):
    make, parameters = CASES[case]
    dense = make()
    n = len(dense)
    w = _weights(n)
    upper = np.triu_indices(n, 1)
    perturber = GraphPerturber(_csr(dense), w, **parameters)

    def fast(rng):
        view = perturber.draw(rng)
        return view.nodes, _apply(dense, view)

    def slow(rng):
        return _algorithm_2(dense, w, rng, **parameters)

    samples = []
    for draw, seed, size in ((fast, 1, 6000), (slow, 2, 2000)):
        rng = np.random.default_rng(seed)
        drawn, first, flipped = np.zeros(n), np.zeros(n), np.zeros(len(upper[0]))
        position, flips = [], []
        for _ in range(size):
            order, Ap = draw(rng)
            assert len(set(order)) == len(order)
            drawn[order] += 1
            first[order[0]] += 1
            changed = (Ap != dense)[upper]
            flipped += changed
            position.extend(np.flatnonzero(order == 0))
            flips.append(changed.sum())
        samples.append((size, drawn, first, flipped, position, flips))
    fast_sample, slow_sample = samples
    n_tests = n + 1 + len(upper[0]) + 2
    level = ALPHA / n_tests

    # Which nodes are drawn, and which pairs of nodes are flipped.
    for which in (1, 3):
        size_a, size_b = fast_sample[0], slow_sample[0]
        a, b = fast_sample[which], slow_sample[which]
        pooled = (a + b) / (size_a + size_b)
        error = np.sqrt(pooled * (1 - pooled) * (1 / size_a + 1 / size_b))
        difference = np.abs(a / size_a - b / size_b)
        # Counts of rare flips are far from normal: allow half a count, as usual.
        difference = np.maximum(difference - 0.5 / size_b, 0)
        assert (difference <= stats.norm.isf(level / 2) * error + 1e-12).all()

    # The node drawn first has the bare probabilities.
    p = np.exp(parameters.get("sharpness", 1.0) * w)
    expected = fast_sample[0] * p / p.sum()
    assert stats.chisquare(fast_sample[2], expected).pvalue > level

    # When node 0 comes, and how many edges are flipped.
    for which in (4, 5):
        test = stats.ttest_ind(fast_sample[which], slow_sample[which], equal_var=False)
        assert test.pvalue > level


def test_order_of_all_nodes_without_edges_is_a_weighted_draw():
    """All 24 orders of four nodes: Plackett-Luce probabilities."""
    w = np.array([0.2, 0.7, 1.2, 2.0])
    perturber = GraphPerturber(csr_array((4, 4)), w, perturbed_nodes=1.0, sharpness=0.8)
    rng = np.random.default_rng(0)
    counts = Counter(tuple(perturber.draw(rng).nodes) for _ in range(8000))
    rates = np.exp(0.8 * w)
    observed, expected = [], []
    for order, count in counts.items():
        left, probability = rates.sum(), 1.0
        for node in order:
            probability *= rates[node] / left
            left -= rates[node]
        observed.append(count)
        expected.append(8000 * probability)
    assert len(counts) == 24
    assert stats.chisquare(observed, expected).pvalue > ALPHA


@pytest.mark.parametrize("make", [_karate, _hub])
def test_changes_are_real(make):
    dense = make()
    perturber = GraphPerturber(
        _csr(dense), _weights(len(dense)), edges_added=3, perturbed_nodes=0.8
    )
    rng = np.random.default_rng(0)
    for _ in range(200):
        view = perturber.draw(rng)
        Ap = _apply(dense, view)
        assert view.n_flipped_edges == (Ap != dense).sum() / 2
        assert len(view.nodes) == round(0.8 * len(dense))
        assert view.nodes.dtype == view.removed_arcs.dtype == np.int64
        assert view.added_edges.dtype == np.int64
        assert (np.diff(view.removed_arcs) > 0).all()
        # An edge changes only where one of its ends was drawn.
        u, v = np.nonzero(Ap != dense)
        assert (np.isin(u, view.nodes) | np.isin(v, view.nodes)).all()


@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_edge_limit_stops_as_soon_as_it_is_reached(rate):
    dense = _karate()
    perturber = GraphPerturber(
        _csr(dense), _weights(34), perturbed_nodes=1.0, perturbation_rate=rate
    )
    target = rate * dense.sum() / 2
    rng = np.random.default_rng(0)
    for _ in range(100):
        flips = perturber.draw(rng).n_flipped_edges
        assert target <= flips < target + 3  # a node flips 1 + 2 edges at most


def test_decay_of_zero_keeps_neighbours_out():
    dense = _karate()
    perturber = GraphPerturber(
        _csr(dense), _weights(34), perturbed_nodes=1.0, decay=0.0
    )
    rng = np.random.default_rng(0)
    for _ in range(50):
        nodes = perturber.draw(rng).nodes
        assert dense[np.ix_(nodes, nodes)].sum() == 0
        # And the set is maximal: every other node has a neighbour in it.
        assert (dense[:, nodes].any(axis=1) | np.isin(np.arange(34), nodes)).all()


def test_complete_graph_gains_nothing_and_ends():
    dense = np.ones((6, 6)) - np.eye(6)
    perturber = GraphPerturber(
        _csr(dense), np.ones(6), perturbed_nodes=1.0, edges_added=3, edges_removed=0
    )
    view = perturber.draw(np.random.default_rng(0))
    assert len(view.nodes) == 6
    assert view.n_flipped_edges == 0


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("connected", [False, True])
def test_tiny_graphs(n, connected):
    dense = (np.ones((n, n)) - np.eye(n)) * connected
    perturber = GraphPerturber(_csr(dense), np.ones(n), perturbed_nodes=1.0)
    for seed in range(20):
        view = perturber.draw(np.random.default_rng(seed))
        assert sorted(view.nodes) == list(range(n))
        _apply(dense, view)


def test_adding_again_cancels_the_removal():
    """Of two nodes, the second drawn regains the edge that the first lost."""
    perturber = GraphPerturber(
        _csr([[0, 1], [1, 0]]), np.ones(2), perturbed_nodes=1.0, edges_removed=1
    )
    view = perturber.draw(np.random.default_rng(0))
    # And loses it once more: as an original edge, not as one that was added.
    assert view.removed_arcs.tolist() == [0, 1]
    assert view.added_edges.shape == (2, 0)


def test_all_edges_can_be_removed():
    dense = _hub()
    perturber = GraphPerturber(
        _csr(dense),
        np.ones(len(dense)),
        perturbed_nodes=1.0,
        edges_added=0,
        edges_removed=100,
    )
    view = perturber.draw(np.random.default_rng(0))
    assert not _apply(dense, view).any()


def test_same_generator_state_same_view():
    perturber = GraphPerturber(_csr(_karate()), _weights(34))
    views = [perturber.draw(np.random.default_rng(5)) for _ in range(2)]
    again = pickle.loads(pickle.dumps(perturber)).draw(np.random.default_rng(5))
    views += [again, perturber.draw(np.random.default_rng(5))]
    for view in views[1:]:
        np.testing.assert_array_equal(view.nodes, views[0].nodes)
        np.testing.assert_array_equal(view.removed_arcs, views[0].removed_arcs)
        np.testing.assert_array_equal(view.added_edges, views[0].added_edges)


def test_threads_do_not_disturb_one_another():
    perturber = GraphPerturber(_csr(_karate()), _weights(34))
    expected = [perturber.draw(np.random.default_rng(s)).removed_arcs for s in range(8)]
    got = {}

    def work(seed):
        for _ in range(20):
            got[seed] = perturber.draw(np.random.default_rng(seed)).removed_arcs

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(8):
        np.testing.assert_array_equal(got[seed], expected[seed])


def test_input_is_untouched_and_may_be_read_only():
    adjacency = _csr(_karate())
    for array in (adjacency.data, adjacency.indices, adjacency.indptr):
        array.flags.writeable = False
    GraphPerturber(adjacency, _weights(34)).draw(np.random.default_rng(0))


def test_hub_of_high_degree():
    n, degree = 20_000, 15_000
    leaves = np.arange(1, degree + 1, dtype=np.int32)
    hub = np.zeros(degree, dtype=np.int32)
    adjacency = csr_array(
        (
            np.ones(2 * degree, np.float32),
            (np.concatenate([hub, leaves]), np.concatenate([leaves, hub])),
        ),
        shape=(n, n),
    )
    w = np.ones(n)
    w[0] = 30.0  # drawn first, but for a chance of 1e-8
    perturber = GraphPerturber(adjacency, w, perturbed_nodes=0.5, edges_added=0)
    view = perturber.draw(np.random.default_rng(0))
    assert view.nodes[0] == 0
    assert len(view.nodes) == n // 2
    # Leaves at half the rate among 4,999 nodes at the full one.
    expected = Counter(view.nodes > degree)[True]
    slow = np.where(np.arange(1, n) > degree, 1.0, 0.5)
    clocks = np.random.default_rng(1).standard_exponential((50, n - 1)) / slow
    drawn = np.argsort(clocks, axis=1)[:, : n // 2 - 1] >= degree
    counts = drawn.sum(axis=1)
    assert (
        abs(expected - counts.mean()) < stats.norm.isf(ALPHA / 2) * counts.std() * 1.1
    )


def test_rates_beyond_floating_point_are_never_drawn():
    w = np.zeros(34)
    w[5] = 1000.0
    view = GraphPerturber(_csr(_karate()), w).draw(np.random.default_rng(0))
    assert view.nodes.tolist() == [5]


def test_warns_only_when_an_edge_limit_is_missed():
    adjacency = _csr(_karate())
    rng = np.random.default_rng(0)

    def draw(**parameters):
        GraphPerturber(adjacency, np.ones(34), **parameters).draw(rng)

    with pytest.warns(PerturbationWarning, match="perturbation_rate"):
        draw(edges_added=0, edges_removed=0, perturbation_rate=0.1)
    with pytest.warns(PerturbationWarning, match="perturbation_rate"):
        draw(perturbed_nodes=1.0, edges_removed=0, perturbation_rate=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draw()
        draw(perturbed_nodes=1.0, edges_added=0, edges_removed=0)
        draw(perturbed_nodes=0.1, perturbation_rate=0.9)
        draw(perturbation_rate=0.0)


@pytest.mark.parametrize(
    "parameters",
    [
        {"perturbed_nodes": 1.5},
        {"perturbed_nodes": float("nan")},
        {"perturbation_rate": -0.1},
        {"edges_added": -1},
        {"edges_removed": -1},
        {"decay": 2.0},
        {"decay_hops": -1},
        {"sharpness": float("inf")},
        {"sharpness": 1e308},
        {"edges_added": 1.5},
        {"edges_added": 2**63},
        {"edges_removed": 1.5},
        {"decay_hops": 0.5},
        {"perturbed_nodes": "half"},
    ],
)
def test_parameters_out_of_range(parameters):
    with pytest.raises(ParameterError, match=next(iter(parameters))):
        GraphPerturber(_csr(_karate()), np.full(34, 2.0), **parameters)


def test_parameters_beyond_what_a_graph_has():
    """As many edges as there are, and hops until there is nowhere left to go."""
    dense = _hub()
    perturber = GraphPerturber(
        _csr(dense),
        np.ones(26),
        perturbed_nodes=1 / 26,
        edges_added=10**12,
        edges_removed=0,
        decay_hops=10**9,
    )
    view = perturber.draw(np.random.default_rng(0))
    assert view.n_flipped_edges == 25 - dense[view.nodes[0]].sum()
    with pytest.raises(NotEnoughMemoryError, match="edges_added"):
        GraphPerturber(csr_array((10**6, 10**6)), np.ones(10**6), edges_added=10**12)


def test_weights_are_checked():
    with pytest.raises(ParameterError, match="one weight"):
        GraphPerturber(_csr(_karate()), np.ones(33))
    w = np.ones(34)
    w[3] = np.nan
    with pytest.raises(ParameterError, match=r"loss_weights\[3\]"):
        GraphPerturber(_csr(_karate()), w)
    with pytest.raises(GraphError, match="loss_weights"):
        GraphPerturber(_csr(_karate()), ["heavy"] * 34)


@pytest.mark.parametrize(
    "dense", [[[0, 1, 0], [0, 0, 1], [0, 1, 0]], [[1, 1], [1, 0]]], ids=str
)
def test_adjacency_must_be_symmetric_without_diagonal(dense):
    with pytest.raises(GraphError, match="symmetric"):
        GraphPerturber(_csr(dense), np.ones(len(dense)))


def test_adjacency_is_a_sound_csr_array():
    with pytest.raises(GraphError, match="must be a csr_array"):
        GraphPerturber(_karate(), np.ones(34))
    with pytest.raises(GraphError, match="must be a csr_array"):
        GraphPerturber(_csr(_karate()).tocsc(), np.ones(34))
    broken = _csr(_karate())
    broken.indices[0] = 10**8
    with pytest.raises(GraphError, match="column 100000000"):
        GraphPerturber(broken, np.ones(34))


def test_arcs_are_paired_with_their_reverse():
    adjacency = _csr(_karate())
    arcs = paired(adjacency.indptr, adjacency.indices)
    row, col = adjacency.tocoo().coords
    place = {(i, j): k for k, (i, j) in enumerate(zip(row, col, strict=True))}
    expected = [place[j, i] for i, j in zip(row, col, strict=True)]
    assert arcs.reverse.tolist() == expected


@pytest.mark.parametrize(
    ("indptr", "indices"),
    [
        ([0, 1, 2], [1, 2]),  # beyond the nodes
        ([0, 1, 2], [1, -1]),
        ([0, 1, 2], [1, 1]),  # a loop
        ([0, 1, 1], [1]),  # no reverse
        ([0, 2, 4], [1, 1, 0, 0]),  # twice
        ([0, 2, 3, 4], [2, 1, 0, 0]),  # not sorted
        ([0, 1, 2, 3], [1, 2, 0]),  # a directed cycle
    ],
)
def test_a_broken_pattern_is_refused(indptr, indices):
    with pytest.raises(GraphError, match="symmetric"):
        paired(np.array(indptr), np.array(indices))
