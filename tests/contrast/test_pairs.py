"""Pairs by relative distance against n x n matrices and a full sort."""

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from sktifa.contrast import ranking
from sktifa.contrast.pairs import (
    PairSettings,
    graph_distances,
    nearest_pairs,
    pair_operator,
    sample_pairs,
    uniform_pairs,
)
from sktifa.datasets import make_block_graph
from sktifa.exceptions import GraphError, ParameterError

# Distances are ranked in steps of 2^-20 and features are float32: ranks may swap
# where distances are closer than this.
TOLERANCE = 5e-6


def _scaled(D):
    """Min-max of every row without its diagonal entry; constant rows become 0."""
    n = len(D)
    off = D[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    low, high = off.min(axis=1), off.max(axis=1)
    width = np.where(high - low > 1e-6 * (1e-6 + high), high - low, np.inf)
    return (D - low[:, None]) / width[:, None]


def _distances(X, A, p, hop_weight=0.5, feature_weight=0.75, max_hops=4):
    """Eq. 12 and 13 as n x n matrices in float64; the diagonal is infinite."""
    X = np.asarray(X, dtype=np.float64)
    ratio = np.log(p[:, None, :] / p[None, :, :])
    D_g = (p[:, None, :] * ratio).sum(axis=2)
    hops = shortest_path(A, unweighted=True)
    D_l = np.where(hops <= max_hops, hops, max_hops + 1)
    norms = np.linalg.norm(X, axis=1)
    unit = X / np.where(norms == 0, 1, norms)[:, None]
    D_e = 1 - unit @ unit.T
    D = _scaled(D_g) + hop_weight * _scaled(D_l) + feature_weight * _scaled(D_e)
    np.fill_diagonal(D, np.inf)
    return D


def _random_graph(n, k=4, n_features=12, density=0.1, seed=0):
    """Sparse binary features and edges, isolated nodes and rows of zeros among them."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n, n)) < density, 1)
    A = (upper | upper.T).astype(np.float32)
    X = (rng.random((n, n_features)) < 0.1).astype(np.float32)
    A[: n // 10] = A[:, : n // 10] = 0
    X[n // 2] = 0
    p = rng.dirichlet(np.ones(k), n) + 0.01
    return X, csr_array(A), p / p.sum(axis=1, keepdims=True)


def _assert_ranks(D, nodes, begin):
    """`nodes` are the ranks from `begin` on of every row of D, in order."""
    in_order = np.sort(D, axis=1)
    expected = in_order[:, begin : begin + nodes.shape[1]]
    got = np.take_along_axis(D, nodes, axis=1)
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE)
    assert all(len(set(row)) == len(row) for row in nodes)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("block_size", [None, 1, 7, 65])
@pytest.mark.parametrize(
    "weights",
    [{}, {"hop_weight": 0.0}, {"feature_weight": 0.0}, {"max_hops": 1}],
    ids=str,
)
def test_random_graph_against_full_sort(sparse, block_size, weights):
    X, A, p = _random_graph(130)
    positives, negatives = sample_pairs(
        csr_array(X) if sparse else X,
        A,
        p,
        negative_ranks=(20, 60),
        block_size=block_size,
        **weights,
    )
    D = _distances(X, A.toarray(), p, **weights)
    assert positives.shape == (130, 5) and positives.dtype == np.int64
    assert negatives.shape == (130, 40) and negatives.dtype == np.int64
    _assert_ranks(D, positives, 0)
    _assert_ranks(D, negatives, 20)


def test_cora_against_full_sort(cora):
    graph = cora.graph.subgraph(np.arange(600))
    rng = np.random.default_rng(0)
    k = cora.target.max() + 1
    p = 0.5 / k + 0.5 * rng.dirichlet(np.full(k, 0.5), 600)
    positives, negatives = sample_pairs(graph.features, graph.adjacency, p)
    features = graph.features
    X = features.toarray() if hasattr(features, "toarray") else features
    D = _distances(X, graph.adjacency.toarray(), p)
    _assert_ranks(D, positives, 0)
    _assert_ranks(D, negatives, 50)


def test_small_divergences_keep_their_order():
    """softmax(Z*) is almost uniform: divergences near 1e-8 must still be ranked."""
    n = 50
    Z = np.random.default_rng(0).uniform(0, 1e-4, (n, 3))
    p = np.exp(Z) / np.exp(Z).sum(axis=1, keepdims=True)
    X, A = np.zeros((n, 2), np.float32), csr_array((n, n), dtype=np.float32)
    positives, _ = sample_pairs(X, A, p, n_positives=n - 1, negative_ranks=(0, 0))
    D = (p[:, None] * np.log(p[:, None] / p[None])).sum(axis=2)
    D = np.maximum(D, 0)
    np.fill_diagonal(D, np.inf)
    got = np.take_along_axis(D, positives, axis=1)
    width = got.max(axis=1, keepdims=True)
    assert (np.diff(got / width, axis=1) > -1e-4).all()


def test_ties_rank_by_index_and_the_anchor_is_left_out():
    n = 9
    p = np.full((n, 3), 1 / 3)
    X, A = np.ones((n, 2), np.float32), csr_array((n, n), dtype=np.float32)
    positives, negatives = sample_pairs(X, A, p, n_positives=2, negative_ranks=(2, 50))
    for i in range(n):
        others = [j for j in range(n) if j != i]
        assert positives[i].tolist() == others[:2]
        assert negatives[i].tolist() == others[2:] + [-1] * (48 - 6)


def test_hops_are_capped():
    """On a path, with nothing else to tell nodes apart, ranks follow the hops."""
    n, max_hops = 12, 3
    A = np.diag(np.ones(n - 1), 1)
    A = csr_array((A + A.T).astype(np.float32))
    positives, _ = sample_pairs(
        np.ones((n, 1), np.float32),
        A,
        np.full((n, 2), 0.5),
        max_hops=max_hops,
        n_positives=n - 1,
        negative_ranks=(0, 0),
    )
    for i in range(n):
        expected = sorted(
            (j for j in range(n) if j != i),
            key=lambda j, i=i: (min(abs(i - j), max_hops + 1), j),
        )
        assert positives[i].tolist() == expected


@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_graphs(n):
    A = csr_array((np.ones((n, n)) - np.eye(n)).astype(np.float32))
    p = np.full((n, 2), 0.5)
    positives, negatives = sample_pairs(np.eye(n, dtype=np.float32), A, p)
    assert positives.shape == (n, 5) and negatives.shape == (n, 100)
    assert (negatives == -1).all()
    for i in range(n):
        others = [j for j in range(n) if j != i]
        assert positives[i].tolist() == others + [-1] * (5 - len(others))
    assert pair_operator(positives, negatives, 0.5).shape == (n, n)


@pytest.mark.parametrize("certain", [0.0, 1e-20])
def test_certain_distributions_stay_finite(certain):
    p = np.array([[1 - certain, certain]] * 3 + [[certain, 1 - certain]] * 3)
    X, A = np.ones((6, 1), np.float32), csr_array((6, 6), dtype=np.float32)
    positives, _ = sample_pairs(X, A, p, n_positives=2, negative_ranks=(2, 3))
    assert positives[0].tolist() == [1, 2]
    assert positives[5].tolist() == [3, 4]


def test_inputs_are_untouched_and_may_be_read_only():
    X, A, p = _random_graph(40)
    for array in (X, p, A.data, A.indices, A.indptr):
        array.flags.writeable = False
    sparse = csr_array(X)
    sparse.data.flags.writeable = False
    with np.errstate(all="raise"):
        sample_pairs(X, A, p)
        sample_pairs(sparse, A, p)


@pytest.mark.parametrize("sparse", [False, True])
def test_ranking_for_cuda_against_full_sort(monkeypatch, sparse):
    """The tensor operations that rank on CUDA, run here on the CPU."""
    monkeypatch.setattr(ranking, "_rank_compiled", ranking._rank_on_device)
    monkeypatch.setattr(
        ranking,
        "hops_from",
        lambda *pattern: ranking._reach(*map(torch.tensor, pattern)).numpy(),
    )
    X, A, p = _random_graph(130)
    features = csr_array(X) if sparse else X
    positives, negatives = sample_pairs(
        features, A, p, negative_ranks=(50, 90), block_size=50
    )
    D = _distances(X, A.toarray(), p)
    _assert_ranks(D, positives, 0)
    _assert_ranks(D, negatives, 50)


def test_hops_from_some_anchors(device):
    _, A, _ = _random_graph(90, density=0.03)
    crow = torch.tensor(A.indptr, device=device)
    col = torch.tensor(A.indices, device=device)
    anchors = torch.tensor([3, 80, 41], device=device)
    expected = shortest_path(A, unweighted=True)[[3, 80, 41]]
    for max_hops in (0, 1, 4):
        searched = ranking.Ranking(
            crow, col, torch.ones(90, 1), None, PairSettings(max_hops=max_hops)
        )
        capped = np.where(expected > max_hops, max_hops + 1, expected)
        np.testing.assert_array_equal(searched.hops(anchors).cpu(), capped)


def test_pairs_stay_on_the_device(device):
    X, A, p = _random_graph(130)
    found = nearest_pairs(
        torch.tensor(A.indptr, device=device),
        torch.tensor(A.indices, device=device),
        torch.tensor(X, device=device),
        torch.tensor(p, device=device),
        PairSettings(negative_ranks=(50, 90)),
    )
    D = _distances(X, A.toarray(), p)
    for sets, begin in zip(found, (0, 50), strict=True):
        assert sets.device.type == device.type and sets.dtype == torch.int32
        _assert_ranks(D, sets.cpu().numpy().astype(np.int64), begin)


def test_only_the_direction_of_features_counts():
    """Whatever their scale: squares of such features have no place in float32."""
    X, A, p = _random_graph(60)
    X *= np.random.default_rng(1).random(X.shape, dtype=np.float32)
    expected = sample_pairs(X, A, p)
    for scale in (1e-30, 1e30):
        for features in (X * np.float32(scale), csr_array(X * np.float32(scale))):
            found = sample_pairs(features, A, p)
            for a, b in zip(expected, found, strict=True):
                assert (a == b).mean() > 0.999


def test_no_distance_becomes_an_index_out_of_range():
    total = np.zeros((1, 6), np.float32)
    total[0, 1:] = np.nan, np.inf, -np.inf, 1e30, 3
    ranked = ranking._smallest(total, np.array([0]), 5)
    assert ranked[0, 2] == 5 and sorted(ranked[0]) == [1, 2, 3, 4, 5]


@pytest.mark.cuda
@pytest.mark.parametrize("sparse", [False, True])
def test_cuda_ranks_like_the_cpu(sparse):
    X, A, p = _random_graph(500, n_features=60)
    features = csr_array(X) if sparse else X
    D = _distances(X, A.toarray(), p)
    positives, negatives = sample_pairs(features, A, p, device="cuda")
    _assert_ranks(D, positives, 0)
    _assert_ranks(D, negatives, 50)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"hop_weight": -1.0}, "hop_weight"),
        ({"feature_weight": float("nan")}, "feature_weight"),
        ({"max_hops": 300}, "max_hops"),
        ({"n_positives": -1}, "n_positives"),
        ({"negative_ranks": (5, 2)}, "negative_ranks"),
        ({"block_size": 0}, "block_size"),
    ],
)
def test_parameters_out_of_range(parameters, match):
    X, A, p = _random_graph(10)
    with pytest.raises(ParameterError, match=match):
        sample_pairs(X, A, p, **parameters)


def test_distribution_and_shapes_are_checked():
    X, A, p = _random_graph(10)
    wrong = p.copy()
    wrong[4] *= 2
    with pytest.raises(ParameterError, match="Row 4"):
        sample_pairs(X, A, wrong)
    with pytest.raises(GraphError, match="one row a node"):
        sample_pairs(X[:9], A, p)
    with pytest.raises(GraphError, match="one row a node"):
        sample_pairs(X, A, p[:9])


def test_uniform_pairs_are_uniform_over_the_others():
    n, size = 8, 4000
    positives, negatives = uniform_pairs(n, size, np.random.default_rng(0))
    assert positives.shape == (n, 0) and negatives.shape == (n, size)
    for i in range(n):
        counts = np.bincount(negatives[i], minlength=n)
        assert counts[i] == 0
        # Chi-square of 7 equal chances; 32.5 is passed by chance once in 100,000.
        others = np.delete(counts, i)
        assert ((others - size / 7) ** 2 / (size / 7)).sum() < 32.5
    again = uniform_pairs(n, size, np.random.default_rng(0))[1]
    np.testing.assert_array_equal(again, negatives)
    assert uniform_pairs(1, 3, np.random.default_rng(0))[1].tolist() == [[-1, -1, -1]]


@pytest.mark.parametrize("negative_weight", [0.0, 0.5])
def test_pair_operator_averages_over_the_sets(negative_weight):
    rng = np.random.default_rng(0)
    n = 10
    positives = rng.integers(-1, n, (n, 3))
    negatives = rng.integers(-1, n, (n, 6))
    positives[0], negatives[1] = -1, -1
    expected = np.zeros((n, n))
    for i in range(n):
        for nodes, weight in ((positives[i], 1.0), (negatives[i], -negative_weight)):
            chosen = nodes[nodes >= 0]
            for j in chosen:
                expected[i, j] += weight / len(chosen)
    operator = pair_operator(positives, negatives, negative_weight)
    assert operator.dtype == np.float32 and operator.has_sorted_indices
    assert (operator.data != 0).all()
    np.testing.assert_allclose(operator.toarray(), expected, atol=1e-7)


def test_pair_operator_of_tensors_is_that_of_arrays(device):
    rng = np.random.default_rng(0)
    n, weights = 7, [0.5, 0.0, 2.0]
    positives = rng.integers(-1, n, (3, n, 2))
    negatives = rng.integers(-1, n, (3, n, 4))
    expected = [
        pair_operator(*sets, weight).toarray()
        for *sets, weight in zip(positives, negatives, weights, strict=True)
    ]
    sets = [
        torch.tensor(part, dtype=torch.int32, device=device)
        for part in (positives, negatives)
    ]
    one = pair_operator(sets[0][0], sets[1][0], 0.5)
    assert one.layout == torch.sparse_csr and one.col_indices().dtype == torch.int32
    np.testing.assert_allclose(one.to_dense().cpu(), expected[0], atol=1e-7)
    stack = pair_operator(*sets, torch.tensor(weights, device=device))
    assert stack.device.type == device.type
    np.testing.assert_allclose(stack.to_dense().cpu(), block_diag(*expected), atol=1e-7)


@pytest.mark.parametrize(
    ("positives", "negatives", "match"),
    [
        ([[1], [7]], [[0], [0]], "positives names node 7 in row 1"),
        ([[1], [0]], [[-2], [0]], "negatives names node -2 in row 0"),
        ([[1], [0]], [[0.5], [0]], "integers"),
        ([[1], [0]], [[0]], "a row a node"),
        ([1, 0], [[0], [0]], "a row a node"),
    ],
)
def test_sets_are_checked(positives, negatives, match):
    with pytest.raises(GraphError, match=match):
        pair_operator(np.array(positives), np.array(negatives), 0.5)


@pytest.mark.parametrize("n_negatives", [1.5, -1, "3"])
def test_uniform_pairs_check_how_many(n_negatives):
    with pytest.raises(ParameterError, match="n_negatives"):
        uniform_pairs(5, n_negatives, np.random.default_rng(0))


@pytest.mark.parametrize("weight", [1e12, 1e15, 1e20, 1e300])
@pytest.mark.parametrize("name", ["hop_weight", "feature_weight"])
def test_only_the_ratios_of_weights_count(name, weight):
    graph = make_block_graph(40, 2, random_state=0).graph
    p = np.random.default_rng(0).dirichlet([1, 1], size=40)
    even = np.full((40, 2), 0.5)
    alone = {"hop_weight": 0.0, "feature_weight": 0.0}
    features, adjacency = graph.features, graph.adjacency
    options = {"negative_ranks": (10, 20), "max_hops": 3}
    # So heavy a term decides alone, except where it is level.
    heavy, _ = sample_pairs(
        features, adjacency, p, **{**alone, name: weight}, n_positives=39, **options
    )
    only, _ = sample_pairs(
        features, adjacency, even, **{**alone, name: 1.0}, n_positives=39, **options
    )
    if name == "feature_weight":
        np.testing.assert_array_equal(heavy, only)
    else:
        hops = graph_distances(features, adjacency, max_hops=3).hops.numpy()
        rows = np.arange(40)[:, None]
        np.testing.assert_array_equal(hops[rows, heavy], hops[rows, only])
