"""The way from NumPy to tensors."""

import numpy as np
import torch

from sktifa.tensors.arrays import as_tensor, like, row_blocks


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


def test_results_are_like_what_was_given():
    tensor = torch.arange(3.0)
    assert as_tensor(tensor) is tensor and like(tensor, tensor) is tensor
    found = like(np.zeros(1), tensor)
    assert isinstance(found, np.ndarray) and found.tolist() == [0, 1, 2]


def test_blocks_cover_all_rows_once():
    blocks = row_blocks(100_000, 1000)
    assert len(blocks) > 1
    rows = np.concatenate([np.arange(100_000)[block] for block in blocks])
    np.testing.assert_array_equal(rows, np.arange(100_000))
    assert row_blocks(3, 0) == [slice(0, 3)]
