"""The door of every ``device`` parameter."""

import pytest
import torch

from sktifa.device import resolve_device
from sktifa.exceptions import ParameterError


def test_cpu_and_auto():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device(torch.device("cpu")) == torch.device("cpu")
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert resolve_device("auto").type == expected


def test_a_name_that_torch_does_not_know():
    with pytest.raises(ParameterError, match="'gpu' is no device"):
        resolve_device("gpu")


def test_cuda_asked_for_and_absent(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ParameterError, match="use device='auto' or 'cpu'"):
        resolve_device("cuda")


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("cuda:1").index == 1
    with pytest.raises(ParameterError, match="last CUDA GPU is 'cuda:1'"):
        resolve_device("cuda:2")


def test_metal_asked_for_and_absent(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ParameterError, match="Metal"):
        resolve_device("mps")
