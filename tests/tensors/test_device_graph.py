"""A graph's arrays on a device."""

import numpy as np
import pytest
import torch

from sktifa.graph import Graph
from sktifa.tensors.device_graph import DeviceGraph

SQUARE = np.array([[0, 2, 0, 1], [2, 0, 1, 0], [0, 1, 0, 3], [1, 0, 3, 0]])


@pytest.mark.parametrize("weighted", [False, True])
def test_the_arrays_are_the_graphs(weighted, device):
    dense = SQUARE if weighted else (SQUARE > 0).astype(int)
    placed = DeviceGraph.from_graph(Graph(dense), device)
    assert placed.n_nodes == 4 and placed.device.type == device.type
    assert (placed.weight is None) == (not weighted)
    arcs = torch.tensor([0, 3])
    assert placed.arc_weight(arcs).tolist() == [dense[0, 1], dense[1, 2]]
    for dtype in (torch.float32, torch.float64):
        matrix = placed.to_csr(dtype)
        assert matrix.dtype == dtype
        np.testing.assert_array_equal(matrix.to_dense().cpu(), dense)


def test_on_the_cpu_nothing_is_copied():
    graph = Graph(SQUARE)
    placed = DeviceGraph.from_graph(graph, torch.device("cpu"))
    assert placed.col.data_ptr() == graph.adjacency.indices.ctypes.data
    assert placed.weight.data_ptr() == graph.adjacency.data.ctypes.data
