"""Drawing ahead in threads."""

import threading

import pytest
import torch

from sktifa.sampling.prefetch import prefetch, record_stream

CPU = torch.device("cpu")


def test_prefetch_keeps_order_passes_errors_on_and_ends_its_threads():
    before = threading.active_count()
    assert list(prefetch(abs, range(-20, 0), device=CPU, n_threads=3)) == list(
        range(20, 0, -1)
    )
    assert list(prefetch(abs, [], device=CPU)) == []

    with pytest.raises(ZeroDivisionError):
        list(prefetch(lambda i: 1 // (3 - i), range(10), device=CPU))
    drawn = []
    stopped = prefetch(drawn.append, range(1000), device=CPU, ahead=2)
    next(stopped)
    stopped.close()
    assert len(drawn) <= 3
    assert threading.active_count() == before


def test_what_holds_itself_is_told_of_a_stream_once():
    class Holder:
        others = ()

    class Data:
        def __init__(self):
            self.streams = []

        def record_stream(self, stream):
            self.streams.append(stream)

    data, outer = Data(), Holder()
    outer.others = (outer, [data], data)
    record_stream(outer, "a stream")
    assert data.streams == ["a stream"]
