"""Topology information gain: how much annotated information reaches each node.

Labels are propagated along the edges (Eq. 1), tempered by how alike a node's features
and a class are (Appendix A1), and summed up in one number a node, its gain (Eq. 2-4).
What takes a `Graph` or an array gives arrays; what takes a `DeviceGraph` or a tensor
stays on the device, with graphs of millions of nodes in mind.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args, overload

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.extmath import row_norms
from torch import Tensor

from sktifa.checks import as_numbers, check_count, check_real
from sktifa.device import undisturbed
from sktifa.exceptions import GraphError, LabelError, ParameterError
from sktifa.graph import Graph
from sktifa.information.propagation import (
    Normalization,
    check_propagation,
    csr_device,
    propagate_on_device,
    solving_dtype,
)
from sktifa.tensors.arrays import ArrayOrTensor, as_tensor, like, row_blocks
from sktifa.tensors.device_graph import DeviceGraph

__all__ = [
    "Aggregate",
    "annotated_information",
    "checked_codes",
    "clarity",
    "class_prototypes",
    "feature_affinity",
    "information_gain",
    "intensity",
    "label_distribution",
    "propagated_labels",
    "teacher_distribution",
]

Matrix: TypeAlias = NDArray[Any] | sparse.csr_array
Codes: TypeAlias = NDArray[np.integer] | Tensor
Aggregate = Literal["sum", "mean"]

# Graphs of more arcs are solved to 1e-5, for which float32 will do: finer than ranks
# of the gain need.
_LARGE = 1 << 22


def class_prototypes(
    features: Matrix | Tensor, codes: Codes, n_classes: int
) -> NDArray[np.float64]:
    """Average the features of each class's labelled nodes (Appendix A1).

    Paper: P, (n_classes, h). A class without labelled nodes gets zeros. CSR features,
    (n, h), are not made dense; `codes`, (n,), are -1 where unlabelled.
    """
    if not isinstance(features, Tensor):
        features = as_numbers(features, "features")
    if features.ndim != 2:
        raise GraphError(f"features must be a matrix, got shape {features.shape}")
    codes = checked_codes(codes, features.shape[0], n_classes).cpu().numpy()
    labelled = np.flatnonzero(codes >= 0)
    of_class = codes[labelled]
    counts = np.bincount(of_class, minlength=n_classes)
    shares = sparse.csr_array(
        (1 / counts[of_class], (of_class, np.arange(len(labelled)))),
        shape=(n_classes, len(labelled)),
    )
    if isinstance(features, Tensor):
        rows: Any = features[torch.from_numpy(labelled).to(features.device)]
        rows = rows.cpu().numpy()
    else:
        rows = features[labelled]
    prototypes = shares @ rows
    return prototypes.toarray() if sparse.issparse(prototypes) else prototypes


@undisturbed()
def feature_affinity(
    features: Matrix,
    prototypes: NDArray[np.floating],
    *,
    device: str | torch.device = "cpu",
) -> NDArray[np.float64]:
    """Compare each node's features with each class: ``(1 + cos(X_i, P_c)) / 2``.

    Returns (n, n_classes), in [0, 1]; the cosine of a row of zeros is taken as 0, its
    affinity 1/2. CSR features are not made dense.
    """
    shape, place = (features.shape[0], len(prototypes)), csr_device(device)
    affinity = torch.ones(shape, dtype=torch.float64, device=place)
    _multiply_by_affinity(affinity, features, prototypes)
    return affinity.cpu().numpy()


def _multiply_by_affinity(
    information: Tensor, features: Matrix | Tensor, prototypes: NDArray[np.floating]
) -> None:
    """Temper information in place, in its dtype and where it lies, block by block."""
    dtype, device = information.dtype, information.device
    centres = torch.tensor(prototypes, dtype=torch.float64, device="cpu")
    directions = (centres / _norms(centres)).T.to(dtype)
    on_device = directions.to(device)
    n, width = features.shape
    for rows in row_blocks(n, 16 * width):  # of which there are copies in float64
        block = features[rows]
        if sparse.issparse(block):
            block = block.astype(directions.numpy().dtype)
            norm = row_norms(block)[:, None]
            cosine = block @ directions.numpy()
            cosine = as_tensor(cosine / np.where(norm > 0, norm, 1)).to(device)
        else:
            dense = as_tensor(block).to(device, dtype)
            cosine = dense @ on_device / _norms(dense)
        information[rows] *= cosine.clamp_(-1, 1).add_(1).div_(2)


def _norms(rows: Tensor) -> Tensor:
    """Return each row's norm, 1 for a row of zeros."""
    norm = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return torch.where(norm > 0, norm, 1)


@overload
def annotated_information(
    graph: Graph,
    codes: Codes,
    n_classes: int,
    *,
    restart_probability: float = ...,
    normalization: Normalization = ...,
    aggregate: Aggregate = ...,
    tol: float | None = ...,
    device: str | torch.device = ...,
) -> NDArray[np.float64]: ...


@overload
def annotated_information(
    graph: DeviceGraph,
    codes: Codes,
    n_classes: int,
    *,
    features: Matrix | Tensor,
    restart_probability: float = ...,
    normalization: Normalization = ...,
    aggregate: Aggregate = ...,
    tol: float | None = ...,
) -> Tensor: ...


@undisturbed()
def annotated_information(
    graph: Graph | DeviceGraph,
    codes: Codes,
    n_classes: int,
    *,
    features: Matrix | Tensor | None = None,
    restart_probability: float = 0.15,
    normalization: Normalization = "column",
    aggregate: Aggregate = "sum",
    tol: float | None = None,
    device: str | torch.device = "cpu",
) -> NDArray[np.float64] | Tensor:
    """Measure what reaches each node from each class's labels (Eq. 1, Appendix A1).

    ``Z*_ic = Z_ic (1 + cos(X_i, P_c)) / 2``: labels propagated along the edges,
    tempered by the affinity of a node's features and a class.

    Parameters
    ----------
    graph : Graph or DeviceGraph
        The whole graph is used, whatever is selected.
    codes : ndarray or Tensor of int, shape (graph.n_nodes,)
        Class of each node of the whole graph; -1 where unlabelled.
    n_classes : int
        Number of classes.
    features : ndarray, csr_array or Tensor of shape (graph.n_nodes, h), default=None
        Features of a `DeviceGraph`, on any device, read block by block. A `Graph` has
        its own.
    restart_probability : float, default=0.15
        In (0, 1] (paper: alpha).
    normalization : {"column", "symmetric", "row"}, default="column"
        See :func:`~sktifa.information.propagation.label_propagation`.
    aggregate : {"sum", "mean"}, default="sum"
        Over the labelled nodes of a class. The paper sums.
    tol : float, default=None
        Relative error of the propagation; None allows 1e-6, and 1e-5 on graphs of more
        than 4 million arcs. Computed in float32 where that is good enough for it.
    device : str or torch.device, default="cpu"
        Where the labels of a `Graph` are propagated.

    Returns
    -------
    ndarray of float64, shape (graph.n_nodes, n_classes)
        Paper: Z*. Zero where no label of a class reaches. Of a `DeviceGraph`, a Tensor
        on its device, in the dtype that was computed in.

    Raises
    ------
    LabelError
        If `codes` don't have one entry a node of the whole graph.
    ParameterError
        If a parameter is outside its range.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.graph import Graph
    >>> from sktifa.information.tig import annotated_information
    >>> path = Graph([[0, 1, 0], [1, 0, 1], [0, 1, 0]], np.ones((3, 1)))
    >>> annotated_information(path, np.array([0, -1, 1]), 2).round(3)
    array([[0.345, 0.195],
           [0.459, 0.459],
           [0.195, 0.345]])
    """
    if isinstance(graph, Graph):
        placed = DeviceGraph.from_graph(graph, csr_device(device))
        features = graph.features
    else:
        placed = graph
    if features is None:
        raise ParameterError("give a Graph, or a DeviceGraph together with features.")
    information = propagated_labels(
        placed,
        codes,
        n_classes,
        restart_probability=restart_probability,
        normalization=normalization,
        aggregate=aggregate,
        tol=tol,
    )
    prototypes = class_prototypes(features, codes, n_classes)
    _multiply_by_affinity(information, features, prototypes)
    if isinstance(graph, Graph):
        return information.to("cpu", torch.float64).numpy()
    return information


@undisturbed()
def propagated_labels(
    graph: DeviceGraph,
    codes: Codes,
    n_classes: int,
    *,
    restart_probability: float = 0.15,
    normalization: Normalization = "column",
    aggregate: Aggregate = "sum",
    tol: float | None = None,
) -> Tensor:
    """Propagate the labels of each class along the edges (Eq. 1), (n_nodes, n_classes).

    Paper: Z, on the device of the graph. The parameters are those of
    :func:`annotated_information`.
    """
    if tol is None:
        tol = 1e-6 if len(graph.col) <= _LARGE else 1e-5
    check_propagation(restart_probability, normalization, tol)
    codes = checked_codes(codes, graph.n_nodes, n_classes).to(graph.device)
    if aggregate not in get_args(Aggregate):
        raise ParameterError(f"aggregate must be 'sum' or 'mean', got {aggregate!r}.")
    dtype = solving_dtype(tol, restart_probability)
    classes = torch.arange(n_classes, device=graph.device)
    sources = (codes[:, None] == classes).to(dtype)
    if aggregate == "mean":
        sources /= sources.sum(0).clamp_min(1)
    return propagate_on_device(
        graph.to_csr(dtype),
        sources,
        restart_probability=restart_probability,
        normalization=normalization,
        tol=tol,
    )


def checked_codes(codes: Codes, n_nodes: int, n_classes: int) -> Tensor:
    """Check that there is a class, or -1, for each node."""
    if not isinstance(codes, Tensor):
        array = np.asarray(codes)
        if array.dtype.kind not in "iu":
            raise LabelError(f"codes must be whole numbers, got dtype {array.dtype}.")
        codes = as_tensor(array.astype(np.int64, copy=False))
    if codes.shape != (n_nodes,):
        raise LabelError(
            f"codes must have shape ({n_nodes},), one entry a node of the whole graph, "
            f"got {tuple(codes.shape)}."
        )
    check_count(n_classes, "n_classes", low=1)
    if codes.numel() and (most := int(codes.max())) >= n_classes:
        raise LabelError(
            f"codes go up to {most}, but n_classes={n_classes}: classes are numbered "
            f"from 0 to {n_classes - 1}."
        )
    return codes


def _known(information: NDArray[np.floating] | Tensor) -> Tensor:
    """Return a tensor as it is, so that nothing waits for a device; check an array."""
    if isinstance(information, Tensor):
        return information
    return check_information(information)


def check_information(
    information: NDArray[np.floating] | Tensor, n_nodes: int | None = None
) -> Tensor:
    """Check what reaches the nodes (Z*), where it is handed in; return it as a tensor.

    It must have `n_nodes` rows, if that is given, and be finite and not negative, else
    a LabelError says where it isn't. An array's values are made float64.
    """
    if isinstance(information, Tensor):
        z = information
    else:
        array = np.asarray(information)
        if array.dtype.kind not in "biuf":
            raise LabelError(f"information must hold real numbers, got {array.dtype}.")
        z = as_tensor(array.astype(np.float64, copy=False))
    if z.ndim != 2 or z.shape[0] != (n_nodes or z.shape[0]):
        rows = "n_nodes" if n_nodes is None else n_nodes
        raise LabelError(
            f"information must have shape ({rows}, n_classes), got {tuple(z.shape)}: "
            "sktifa.information.tig.annotated_information makes it."
        )
    wrong = ~((z >= 0) & z.isfinite()).all(1)
    if wrong.any():
        at = int(wrong.int().argmax())
        raise LabelError(
            f"information of node {at} is {z[at].tolist()}: it must be finite and not "
            "negative."
        )
    return z


def intensity(information: ArrayOrTensor) -> ArrayOrTensor:
    """Take what arrives from the strongest class, (n,): ``max_c Z*_ic`` (Eq. 2)."""
    return like(information, _known(information).amax(1))


def clarity(information: ArrayOrTensor) -> ArrayOrTensor:
    """Take minus what arrives from the other classes: ``max - sum`` (Eq. 3), (n,).

    Never positive; the larger, the clearer. In float64.
    """
    z = _known(information)
    return like(information, z.amax(1).double() - z.sum(1, dtype=torch.float64))


def information_gain(
    information: ArrayOrTensor, clarity_weight: float = 0.1
) -> ArrayOrTensor:
    """Sum up what reaches a node in one number, its TIG, (n,) in float64 (Eq. 4).

    ``T = intensity + clarity_weight / (k - 1) * clarity`` (`clarity_weight` is the
    paper's lambda). Where that is at most 1, ``T >= (1 - clarity_weight) * intensity``;
    a node that no label reaches has 0, the lowest. There must be at least two classes.
    """
    z = _known(information)
    n_classes = z.shape[1]
    if n_classes < 2:
        raise LabelError(
            "the information gain compares classes, but the labelled nodes are all of "
            "1 class: label nodes of at least 2."
        )
    check_real(clarity_weight, "clarity_weight", low=-np.finfo(np.float64).max)
    gain = intensity(z).double() + clarity_weight / (n_classes - 1) * clarity(z)
    return like(information, gain)


def label_distribution(
    information: ArrayOrTensor,
    kind: Literal["sum", "softmax"] = "sum",
    smoothing: float = 1e-3,
) -> ArrayOrTensor:
    """Make a distribution over the classes of what reaches each node (Eq. 11).

    ``(Z* + s) / sum_c(Z* + s)`` by "sum", or the paper's ``softmax(Z*)``: Z* is so
    small that softmax is close to uniform and tells classes apart badly. With "sum" no
    class has probability 0: ``s = smoothing * Z*.mean()``. Uniform where no label
    reaches.
    """
    z = _known(information)
    if kind == "softmax":
        return like(information, z.softmax(1))
    if kind != "sum":
        raise ParameterError(f"kind must be 'sum' or 'softmax', got {kind!r}.")
    mean = float(z.mean(dtype=torch.float64))
    return like(information, _smoothed(z, smoothing, mean if mean > 0 else 1.0))


def teacher_distribution(
    information: ArrayOrTensor, smoothing: float = 1e-4
) -> ArrayOrTensor:
    """Make of what reaches each node what a teacher would say of its class.

    As :func:`label_distribution` by "sum", but each entry is smoothed by the same
    amount whatever the graph: the less reaches a node, the closer its row is to
    uniform.
    """
    return like(information, _smoothed(_known(information), smoothing, 1.0))


def _smoothed(information: Tensor, smoothing: float, unit: float) -> Tensor:
    check_real(smoothing, "smoothing", open=True)
    raw = information + smoothing * unit
    return raw.div_(raw.sum(1, keepdim=True))
