"""The door of every ``device`` parameter."""

import psutil
import pytest
import torch

from sktifa.device import _left_of_cgroup_limits, free_memory, resolve_device
from sktifa.exceptions import ParameterError


def test_cpu_and_auto():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device(torch.device("cpu")) == torch.device("cpu")
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert resolve_device("auto").type == expected


def test_a_name_that_torch_does_not_know():
    with pytest.raises(ParameterError, match="'gpu' is no device"):
        resolve_device("gpu")


@pytest.mark.parametrize(
    ("device", "match"),
    [
        ("meta", "holds no data"),
        (torch.device("meta"), "holds no data"),
        ("xpu", "has no such device here"),
        ("vulkan", "has no such device here"),
        (None, "None is no device"),
        (["cpu"], "is no device"),
        ("cpu:x", "is no device"),
    ],
)
def test_devices_without_data_or_that_are_not_there(device, match):
    with pytest.raises(ParameterError, match=match):
        resolve_device(device)


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


def test_free_memory_is_what_the_system_has_or_the_control_group_leaves(monkeypatch):
    assert 0 < free_memory("cpu") <= psutil.virtual_memory().total
    monkeypatch.setattr("sktifa.device._left_of_cgroup_limits", lambda: 4096.0)
    assert free_memory(torch.device("cpu")) == 4096
    monkeypatch.setattr("sktifa.device._left_of_cgroup_limits", lambda: -1.0)
    assert free_memory("cpu") == 0


def test_control_groups_of_version_2(tmp_path):
    own = tmp_path / "own"
    own.write_text("0::/jobs/one\n")
    for group, limit, used in [("jobs", "5000", "4000"), ("jobs/one", "max", "100")]:
        (tmp_path / group).mkdir()
        (tmp_path / group / "memory.max").write_text(limit + "\n")
        (tmp_path / group / "memory.current").write_text(used + "\n")
        (tmp_path / group / "memory.stat").write_text("anon 7\ninactive_file 300\n")
    assert _left_of_cgroup_limits(tmp_path, own) == 5000 - 4000 + 300


def test_control_groups_of_version_1_in_a_container(tmp_path):
    own = tmp_path / "own"
    own.write_text("5:devices:/\n4:memory:/only/on/the/host\n0::/\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("5000")
    (tmp_path / "memory" / "memory.usage_in_bytes").write_text("1000")
    (tmp_path / "memory" / "memory.stat").write_text("total_inactive_file 0\n")
    assert _left_of_cgroup_limits(tmp_path, own) == 4000


def test_no_control_groups(tmp_path):
    assert _left_of_cgroup_limits(tmp_path, tmp_path / "none") == float("inf")
