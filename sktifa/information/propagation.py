"""Label propagation, solved exactly (Eq. 1).

``Z = a (I - (1 - a) A')^-1 Z0`` is similar to a system with the symmetric matrix
``M = I - (1 - a) S``, ``S = D^-1/2 A D^-1/2``, whose spectrum lies in [a, 2 - a].
Chebyshev semi-iteration on it needs no inner products, so nothing is waited for on a
GPU, and residual and error after t sweeps are at most ``1 / T_t(1 / (1 - a))`` of what
they were (T_t: the Chebyshev polynomial): the number of sweeps is known beforehand,
about ``sqrt(2 / a)`` times a constant where plain iteration needs ``1 / a`` times one.
On real graphs the residual reaches its bound within a sweep or two of that number, so
looking at it on the way would save nothing.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sktifa.callers import warn_user
from sktifa.checks import check_adjacency, check_count, check_matrix, check_real
from sktifa.device import resolve_device, undisturbed
from sktifa.exceptions import GraphError, ParameterError
from sktifa.tensors.arrays import as_tensor
from sktifa.tensors.device_graph import DeviceGraph
from sktifa.tensors.sparse import csr_tensor

__all__ = ["Normalization", "label_propagation", "propagate_on_device"]

Normalization = Literal["column", "symmetric", "row"]

# Rounding errors grow with the condition of the system, about 2 / alpha: float32 is
# good for a relative error of this much divided by alpha.
_FLOAT32_ERROR = 1e-6
# The precision of float64.
_SMALLEST_TOL = 1e-15


def label_propagation(
    adjacency: sparse.csr_array,
    sources: ArrayLike,
    *,
    restart_probability: float = 0.15,
    normalization: Normalization = "column",
    tol: float = 1e-6,
    max_iter: int = 1000,
    device: str | torch.device = "cpu",
) -> NDArray[np.float64]:
    """Solve ``Z = a (I - (1 - a) A')^-1 Z0`` (Eq. 1), in float64 of shape (n, k).

    `adjacency` is symmetric, its weights not negative; `sources` is Z0, (n, k), what
    each node gives out, one column a class. A restart probability (alpha) of 1 spreads
    nothing; a node without edges keeps ``a Z0``. A' is ``A D^-1`` (the paper's),
    ``D^-1/2 A D^-1/2`` or ``D^-1 A``. What is returned is not negative where `sources`
    are not, and exactly 0 where none of them reaches.

    `tol` is the largest error of a column relative to the column's solution, in the
    norm of the symmetric system. Computed in float32 where that is good enough, which
    is for ``tol * restart_probability >= 1e-6``, else in float64. With ``tol=1e-6``, an
    alpha of 0.15 needs 25 sweeps and 0.01 needs 103; if `max_iter` ends them first, a
    ConvergenceWarning says so. Devices without CSR products (mps) hand over to the CPU.
    """
    check_propagation(restart_probability, normalization, tol, max_iter)
    adjacency = check_adjacency(adjacency, dtype=np.float64)
    given = _checked_sources(sources, adjacency.shape[0])
    where = csr_device(device)
    dtype = solving_dtype(tol, restart_probability)
    spread = propagate_on_device(
        DeviceGraph.from_csr(adjacency, where).to_csr(dtype),
        given.to(where, dtype),
        restart_probability=restart_probability,
        normalization=normalization,
        tol=tol,
        max_iter=max_iter,
    )
    return spread.to("cpu", torch.float64).numpy()


def _checked_sources(sources: ArrayLike, n_nodes: int) -> Tensor:
    given = sources.toarray() if sparse.issparse(sources) else sources
    values = check_matrix(given, "sources", dtype=np.float64)
    if values.shape[0] != n_nodes:
        raise GraphError(
            f"sources must have shape ({n_nodes}, n_classes), one row a node, got "
            f"{values.shape}."
        )
    return as_tensor(values)


def solving_dtype(tol: float, restart_probability: float) -> torch.dtype:
    """Return float32 where its rounding errors allow `tol`, else float64."""
    enough = tol * restart_probability >= _FLOAT32_ERROR
    return torch.float32 if enough else torch.float64


def csr_device(device: str | torch.device) -> torch.device:
    """Return the device itself, or the CPU where it has no CSR products (mps)."""
    where = resolve_device(device)
    return where if where.type in ("cpu", "cuda") else torch.device("cpu")


@undisturbed()
def propagate_on_device(
    adjacency: Tensor,
    sources: Tensor,
    *,
    restart_probability: float = 0.15,
    normalization: Normalization = "column",
    tol: float = 1e-6,
    max_iter: int = 1000,
) -> Tensor:
    """Solve Eq. 1 for tensors that lie on one device already, as `label_propagation`.

    `adjacency` is a CSR tensor in the dtype of `sources`, in which it is computed.
    """
    check_propagation(restart_probability, normalization, tol, max_iter)
    n = adjacency.shape[0]
    crow, col = adjacency.crow_indices(), adjacency.col_indices()
    values = adjacency.values()
    degree = (adjacency @ values.new_ones(n, 1))[:, 0]
    # A node without edges has no arc to scale, so its factor may be anything but 0.
    root = torch.where(degree > 0, degree, 1).sqrt_()
    counts = (crow[1:] - crow[:-1]).long()
    values = values / root.repeat_interleave(counts, output_size=len(values))
    values /= root.index_select(0, col)
    symmetric = csr_tensor(crow, col, values, adjacency.shape)
    if normalization == "column":
        scale = root.reciprocal()[:, None]
    elif normalization == "row":
        scale = root[:, None]
    else:
        scale = torch.ones_like(root)[:, None]
    right = (sources * scale).mul_(restart_probability)
    solution = _chebyshev(symmetric, right, 1 - restart_probability, tol, max_iter)
    solution /= scale
    # The solution is not negative; what the last sweep left below 0 is error.
    return solution.clamp_(min=0) if bool((sources >= 0).all()) else solution


def _chebyshev(
    matrix: Tensor, right: Tensor, damping: float, tol: float, max_iter: int
) -> Tensor:
    """Solve ``(I - damping * matrix) x = right``, the spectrum of `matrix` in [-1, 1].

    ``x_{t+1} = w (damping * matrix x_t + right - x_{t-1}) + x_{t-1}`` with
    ``w_{t+1} = 1 / (1 - damping^2 w_t / 4)``, two buffers and one product a sweep.
    """
    needed = _n_sweeps(damping, tol)
    if needed > max_iter:
        reached = 1 / math.cosh(max_iter * math.acosh(1 / damping))
        warn_user(
            f"label propagation was cut after max_iter={max_iter} sweeps: the relative "
            f"error may be {reached:.1e} where tol={tol:.1e} needs {needed} sweeps. "
            "Raise restart_probability, or the max_iter or tol of label_propagation.",
            ConvergenceWarning,
        )
    previous, current = torch.zeros_like(right), right.clone()
    omega = 2.0
    # x_1 = right: the first sweep starts from 0 and costs no product.
    for _ in range(1, min(needed, max_iter)):
        omega = 1 / (1 - damping**2 * omega / 4)
        previous.lerp_(right, omega).addmm_(matrix, current, alpha=omega * damping)
        previous, current = current, previous
    return current


def _n_sweeps(damping: float, tol: float) -> int:
    """Count the sweeps t for which ``T_t(1 / damping) >= 1 / tol``."""
    if damping == 0 or tol >= 1:
        return 1
    return max(1, math.ceil(math.acosh(1 / tol) / math.acosh(1 / damping)))


def check_propagation(
    restart_probability: float, normalization: str, tol: float, max_iter: int = 1
) -> None:
    """Check the parameters of a propagation."""
    check_real(restart_probability, "restart_probability", high=1, open=True)
    if 1 - restart_probability == 1:
        raise ParameterError(
            f"restart_probability={restart_probability} is lost beside 1 in float64: "
            "give at least 1e-15."
        )
    if normalization not in get_args(Normalization):
        raise ParameterError(
            f"normalization must be one of {get_args(Normalization)}, got "
            f"{normalization!r}."
        )
    check_real(tol, "tol", low=_SMALLEST_TOL)
    check_count(max_iter, "max_iter", low=1)
