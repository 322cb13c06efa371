"""Memory is written to again when nobody looks at it any more, and not before."""

import threading

import pytest
import torch

from sktifa.tensors.kernels import cpu
from sktifa.tensors.kernels.memory import empty, reused

SHAPE = 6, 400, 300


def place_of(tensor):
    return tensor.untyped_storage().data_ptr()


def view(tensor):
    return tensor[1:]


def numbers(tensor):
    return tensor.numpy()


def kept_for_the_gradient(tensor):
    return tensor.fill_(1).requires_grad_().square()


def test_memory_that_is_free_is_used_again():
    with reused():
        first = place_of(empty(*SHAPE))
        assert place_of(empty(*SHAPE)) == first
        # So is a part of it, as a stack has ever fewer models; a large one is spared.
        assert place_of(empty(4, *SHAPE[1:])) == first
        assert place_of(empty(2, 400, 400)) != first


@pytest.mark.parametrize("look", [view, numbers, kept_for_the_gradient])
def test_memory_that_somebody_looks_at_is_left_alone(look):
    with reused():
        tensor = empty(*SHAPE)
        place, looked_at = place_of(tensor), look(tensor)
        del tensor
        assert place_of(empty(*SHAPE)) != place
        del looked_at
        assert place in [place_of(t) for t in (empty(*SHAPE), empty(*SHAPE))]


def test_what_outlives_the_block_stays_as_it_is():
    with reused():
        tensor = empty(*SHAPE).fill_(1)
    with reused():
        other = empty(*SHAPE).fill_(2)
    assert (tensor == 1).all()
    assert (other == 2).all()


def test_a_block_within_a_block_keeps_what_is_there():
    with reused():
        place = place_of(empty(*SHAPE))
        with reused():
            assert place_of(empty(*SHAPE)) == place
        assert place_of(empty(*SHAPE)) == place


def test_threads_share_no_memory():
    places = []
    with reused():
        places.append(place_of(empty(*SHAPE)))

        def work():
            with reused():
                places.append(place_of(empty(*SHAPE)))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert places[0] != places[1]


def test_tensors_begin_where_vectors_do():
    with reused():
        kept = [empty(300, 1001 + i) for i in range(8)]
        assert all(tensor.data_ptr() % 64 == 0 for tensor in kept)
        assert all(tensor.is_contiguous() for tensor in kept)


def test_kernels_return_the_same_in_memory_used_before():
    x, weight = torch.randn(2, 5000, 40), torch.randn(2, 40, 60)
    expected = cpu.matmul(x, weight)
    with reused():
        for _ in range(3):
            assert torch.equal(cpu.matmul(x, weight), expected)
