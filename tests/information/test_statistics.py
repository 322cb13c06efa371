"""The statistics on the device are those on the host."""

import numpy as np
import pytest
import torch

from sktifa.datasets import make_block_graph
from sktifa.graph import Graph
from sktifa.information import loss_weights as weights
from sktifa.information import statistics, tig
from sktifa.information.statistics import DeviceGraph, as_tensor


@pytest.mark.parametrize("kind", ["dense", "sparse", "resident", "weighted"])
def test_information_gain_weights_and_distribution(kind, device):
    made = make_block_graph(2000, 5, average_degree=4, random_state=0)
    graph = made.graph
    if kind == "sparse":
        graph = graph.with_features(np.where(graph.features > 1, graph.features, 0))
    if kind == "weighted":
        adjacency = graph.adjacency.copy()
        adjacency.data = (
            1
            + (
                adjacency.indices
                + np.repeat(np.arange(2000), np.diff(adjacency.indptr))
            ).astype(np.float32)
            % 3
        )
        graph = Graph(adjacency, graph.features)
    codes = np.where(np.arange(2000) % 40 == 0, made.target, -1)
    placed = DeviceGraph.from_graph(graph, device)
    assert (placed.weight is None) == (kind != "weighted")
    resident = None
    if kind == "resident":
        resident = torch.tensor(graph.features, device=device)
    z = statistics.annotated_information(
        placed, graph.features, codes, 5, resident=resident
    )
    expected = tig.annotated_information(graph, codes, 5)
    np.testing.assert_allclose(z.cpu(), expected, atol=1e-5 * expected.max(), rtol=1e-3)
    exact = torch.tensor(expected, device=device)
    gain = statistics.information_gain(exact)
    np.testing.assert_allclose(gain.cpu(), tig.information_gain(expected), atol=1e-12)
    np.testing.assert_allclose(
        statistics.loss_weights(gain, 0.2, 2.2).cpu(),
        weights.loss_weights(gain.cpu().numpy()),
        atol=1e-5,
    )
    for how in ("sum", "softmax"):
        np.testing.assert_allclose(
            statistics.label_distribution(exact, how).cpu(),
            tig.label_distribution(expected, how),
            atol=1e-6,
        )


def test_ties_share_their_rank():
    gain = torch.tensor([0.0, 0.5, 0.0, 0.2, 0.0], dtype=torch.float64)
    np.testing.assert_allclose(
        statistics.loss_weights(gain, 1.0, 2.0), weights.loss_weights(gain, 1, 2)
    )


def test_a_read_only_array_becomes_a_tensor_without_copy_or_warning(recwarn):
    array = np.arange(6.0, dtype=np.float32)
    view = array.view()
    view.flags.writeable = False
    tensor = as_tensor(view)
    assert tensor.data_ptr() == array.ctypes.data and not recwarn.list
    del view
    array[0] = 5
    assert tensor[0] == 5
    assert as_tensor(np.empty((0, 3), dtype=np.float32)[:]).shape == (0, 3)
