"""Label propagation against the dense inverse."""

import warnings

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sktifa.exceptions import GraphError, ParameterError
from sktifa.information import propagation
from sktifa.information.propagation import label_propagation, propagate_on_device

NORMALIZATIONS = ("column", "symmetric", "row")


def _random_graph(seed, n=60, weighted=True, isolated=5):
    """Two components with weights over three decades, and nodes without edges."""
    rng = np.random.default_rng(seed)
    dense = np.triu(rng.random((n, n)) < 0.1, 1) * 1.0
    if weighted:
        dense *= 10 ** rng.uniform(-2, 1, (n, n))
    dense[: n // 2, n // 2 :] = 0
    dense[-isolated:] = dense[:, -isolated:] = 0
    dense = (dense + dense.T).astype(np.float32)
    sources = np.zeros((n, 3))
    labelled = np.r_[rng.permutation(n - isolated)[:12], n - 1]
    sources[labelled, np.arange(13) % 3] = 1
    return sparse.csr_array(dense), sources


def _dense_solution(adjacency, sources, alpha, normalization):
    dense = adjacency.toarray().astype(np.float64)
    degree = dense.sum(axis=0)
    inverse = np.divide(1, degree, out=np.zeros_like(degree), where=degree > 0)
    left, right = {
        "column": (np.ones_like(inverse), inverse),
        "symmetric": (np.sqrt(inverse), np.sqrt(inverse)),
        "row": (inverse, np.ones_like(inverse)),
    }[normalization]
    step = left[:, None] * dense * right
    system = np.eye(len(dense)) - (1 - alpha) * step
    return alpha * np.linalg.inv(system) @ sources


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.15, 0.5, 1.0])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_equals_the_dense_inverse(alpha, normalization, device):
    for seed in range(3):
        adjacency, sources = _random_graph(seed, weighted=seed > 0)
        found = label_propagation(
            adjacency,
            sources,
            restart_probability=alpha,
            normalization=normalization,
            tol=1e-8,
            device=device,
        )
        expected = _dense_solution(adjacency, sources, alpha, normalization)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        assert found.dtype == np.float64
        assert (found >= 0).all()


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-5, 1e-6, 1e-9])
@pytest.mark.parametrize("alpha", [0.01, 0.15])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_keeps_the_promised_tolerance(tol, alpha, normalization, device):
    """The error of each column is at most `tol` in the norm of the docstring."""
    adjacency, sources = _random_graph(4)
    found = label_propagation(
        adjacency,
        sources,
        restart_probability=alpha,
        normalization=normalization,
        tol=tol,
        device=device,
    )
    expected = _dense_solution(adjacency, sources, alpha, normalization)
    degree = adjacency.sum(axis=0)
    power = {"column": -0.5, "symmetric": 0.0, "row": 0.5}[normalization]
    scale = np.where(degree > 0, degree, 1.0)[:, None] ** power
    error = np.linalg.norm(scale * (found - expected), axis=0)
    assert (error <= tol * np.linalg.norm(scale * expected, axis=0)).all()


def test_isolated_nodes_keep_their_share_and_unreached_ones_get_nothing():
    adjacency, sources = _random_graph(5)
    sources[30:] = 0
    sources[-1, 2] = 1
    found = label_propagation(adjacency, sources, restart_probability=0.15)
    np.testing.assert_allclose(found[-1], [0, 0, 0.15], rtol=1e-6)
    # The second component has no source: exactly nothing arrives there.
    assert (found[30:-1] == 0).all()


def test_column_normalization_conserves_what_is_given_out():
    adjacency, sources = _random_graph(6, isolated=1)
    degree = adjacency.sum(axis=0)
    sources[degree == 0] = 0
    found = label_propagation(adjacency, sources, tol=1e-10)
    np.testing.assert_allclose(found.sum(axis=0), sources.sum(axis=0), rtol=1e-8)


def test_all_of_it_stays_at_home_with_certain_restart():
    adjacency, sources = _random_graph(7)
    found = label_propagation(adjacency, sources, restart_probability=1)
    np.testing.assert_allclose(found, sources)


def test_sweeps_are_few_and_known():
    # READING 1: plain iteration needs ln(tol) / ln(1 - alpha), 270 for 0.05.
    assert propagation._n_sweeps(0.95, 1e-6) == 45
    assert propagation._n_sweeps(0.85, 1e-6) == 25
    assert propagation._n_sweeps(0.0, 1e-6) == 1


def test_cut_iteration_warns_and_says_how_far_it_came():
    adjacency, sources = _random_graph(8)
    options = {"restart_probability": 0.05, "normalization": "symmetric"}
    with pytest.warns(ConvergenceWarning, match=r"max_iter=10 .* needs 45 sweeps") as w:
        found = label_propagation(adjacency, sources, max_iter=10, **options)
    assert w[0].filename == __file__
    bound = float(str(w[0].message).split("may be ")[1].split()[0])
    expected = _dense_solution(adjacency, sources, 0.05, "symmetric")
    error = np.linalg.norm(found - expected, axis=0)
    assert (error <= 1.05 * bound * np.linalg.norm(expected, axis=0)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        label_propagation(adjacency, sources, max_iter=45, **options)


def test_on_device_tensors_in_and_out(device):
    adjacency, sources = _random_graph(9)
    matrix = torch.sparse_csr_tensor(
        torch.from_numpy(adjacency.indptr),
        torch.from_numpy(adjacency.indices),
        torch.from_numpy(adjacency.data).double(),
        adjacency.shape,
    ).to(device)
    given = torch.from_numpy(sources).to(device)
    kept = matrix.values().clone(), given.clone()
    found = propagate_on_device(matrix, given, restart_probability=0.15)
    assert found.device == given.device and found.dtype == given.dtype
    assert torch.equal(matrix.values(), kept[0]) and torch.equal(given, kept[1])
    expected = label_propagation(adjacency, sources, device="cpu")
    np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=0, atol=1e-9)


def test_inputs_may_be_read_only_and_negative():
    adjacency, sources = _random_graph(10)
    for array in (adjacency.data, adjacency.indices, adjacency.indptr, sources):
        array.flags.writeable = False
    found = label_propagation(adjacency, -sources)
    np.testing.assert_allclose(-found, label_propagation(adjacency, sources), atol=1e-6)


def test_graphs_without_edges_or_with_one_node():
    for n in (1, 4):
        empty = sparse.csr_array((n, n), dtype=np.float32)
        found = label_propagation(empty, np.ones((n, 2)), restart_probability=0.3)
        np.testing.assert_allclose(found, np.full((n, 2), 0.3))


def test_no_dense_square_matrix(pubmed):
    """PubMed's dense matrix would take 3.1 GB; memory traced stays far below."""
    import tracemalloc

    graph, target = pubmed.graph, pubmed.target
    sources = np.zeros((graph.n_nodes, 3))
    sources[np.arange(60), target[:60]] = 1
    biggest = []
    original = torch.sparse_csr_tensor

    def spy(crow, col, values, *args, **kwargs):
        biggest.append(values.numel())
        return original(crow, col, values, *args, **kwargs)

    tracemalloc.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "sparse_csr_tensor", spy)
        label_propagation(graph.adjacency, sources)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()
    assert max(biggest) == graph.adjacency.nnz


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"restart_probability": 0}, "restart_probability"),
        ({"restart_probability": 1.1}, "restart_probability"),
        ({"restart_probability": float("nan")}, "restart_probability"),
        ({"normalization": "rows"}, "normalization"),
        ({"tol": 0}, "tol"),
        ({"restart_probability": 1e-17}, "restart_probability=1e-17 is lost"),
        ({"tol": 1e-310}, "tol must be a number from 1e-15"),
        ({"tol": "small"}, "tol must be a number"),
        ({"max_iter": 0}, "max_iter"),
        ({"max_iter": 2.5}, "max_iter"),
        ({"device": "meta"}, "device='meta'"),
    ],
)
def test_parameters_out_of_range(options, words):
    adjacency, sources = _random_graph(11)
    with pytest.raises(ParameterError, match=words):
        label_propagation(adjacency, sources, **options)


def test_sources_of_another_length():
    adjacency, sources = _random_graph(12)
    with pytest.raises(GraphError, match=r"\(60, n_classes\)"):
        label_propagation(adjacency, sources[1:])


@pytest.mark.parametrize(
    ("value", "words"),
    [(np.nan, "sources has nan in row 2"), ("a", "real numbers"), (1j, "real numbers")],
)
def test_sources_that_are_no_numbers(value, words):
    adjacency, sources = _random_graph(12)
    sources = sources.astype(type(value) if value is not np.nan else float)
    sources[2, 1] = value
    with pytest.raises(GraphError, match=words):
        label_propagation(adjacency, sources)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda a: a.toarray(), "must be a sparse matrix, got ndarray"),
        (lambda a: -a, "must not be negative"),
        (lambda a: a * np.nan, "must be finite"),
        (lambda a: sparse.triu(a), "the other way: make it symmetric"),
        (lambda a: a[:, :-1], "square"),
        (lambda a: _out_of_range(a.tocsc()), "has an entry in row 100000000"),
        (lambda a: _out_of_range(a), "column 100000000"),
    ],
)
def test_an_adjacency_that_is_none(damage, words):
    adjacency, sources = _random_graph(13)
    with pytest.raises(GraphError, match=words):
        label_propagation(damage(adjacency), sources)


def _out_of_range(matrix):
    matrix.indices[0] = 10**8
    return matrix


@pytest.mark.cuda
def test_cuda_equals_cpu_on_a_real_graph(computers):
    graph, target = computers.graph, computers.target
    sources = (target[:, None] == np.arange(10)) * 1.0
    sources[300:] = 0
    for tol, atol in ((1e-6, 1e-12), (1e-5, 1e-5)):
        found = [
            label_propagation(graph.adjacency, sources, tol=tol, device=device)
            for device in ("cpu", "cuda")
        ]
        np.testing.assert_allclose(*found, rtol=0, atol=atol * found[0].max())
