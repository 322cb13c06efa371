"""Dense tensors as arrays."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

__all__ = ["native", "tensor_as_array"]


def native(array: NDArray[Any]) -> NDArray[Any]:
    """Bring numbers into this machine's byte order: SciPy and torch know no other."""
    if array.dtype.isnative:  # strings of any length have no byte order
        return array
    return array.astype(array.dtype.newbyteorder("="))


def tensor_as_array(tensor: Any) -> NDArray[Any]:
    """Read a tensor on any device, if it is not sparse."""
    if tensor.device.type == "meta":
        raise ValueError("a tensor on the device 'meta' has no data")
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    tensor = tensor.cpu()
    if str(tensor.dtype).startswith(("torch.bfloat", "torch.float8")):
        tensor = tensor.float()  # NumPy has no such type
    return tensor.resolve_conj().resolve_neg().numpy()
