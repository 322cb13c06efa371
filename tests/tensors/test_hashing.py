"""Numbers by hash against published ones, Python's integers and distributions."""

import numpy as np
import torch
from scipy import stats

from sktifa.tensors.hashing import exponential, mixed


def test_bits_are_those_of_splitmix64():
    # The generator's first outputs from the state 0 (Vigna, splitmix64.c).
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    found = mixed(torch.tensor(0), torch.arange(3))
    assert [int(bits) % 2**64 for bits in found] == expected


def test_draws_are_uniform_and_keys_independent():
    """Three tests at a level of 1e-4 each, on fixed numbers."""
    keys = mixed(torch.arange(50)[:, None], torch.arange(40))
    bits = mixed(keys.flatten()[:, None], torch.arange(30))
    upper = bits.numpy().view(np.uint64) >> 32
    cells = torch.bincount(torch.from_numpy(upper * 100 >> 32).long().flatten())
    assert len(cells) == 100
    assert stats.chisquare(cells.numpy()).pvalue > 1e-4
    times = exponential(bits).numpy()
    assert (times >= 0).all()
    assert stats.kstest(times.ravel(), "expon").pvalue > 1e-4
    # Neighbouring seeds, views and numbers.
    high = (upper >> 31).astype(int).reshape(50, 40, 30) * 2 - 1
    products = [
        (high.take(range(1, n), axis) * high.take(range(n - 1), axis)).mean()
        for axis, n in enumerate(high.shape)
    ]
    assert np.abs(products).max() < 4.1 / np.sqrt(49 * 40 * 29)


def test_small_times_are_told_apart():
    """The race is decided among the smallest clocks."""
    times = exponential(mixed(torch.tensor(0), torch.arange(200_000)))
    assert len(times.unique()) == len(times)
