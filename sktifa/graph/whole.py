"""What all selections of one graph share."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from sktifa.exceptions import NodeNameError

if TYPE_CHECKING:
    from sktifa.graph.container import Graph

__all__ = ["Whole", "frozen"]


@dataclass(eq=False)
class Whole:
    """Adjacency, features and names, and what is worked out of them once."""

    adjacency: sp.csr_array
    features: NDArray[np.float32] | sp.csr_array
    feature_names: list[str] | None = None
    node_names: NDArray[Any] | None = None
    parent_nodes: NDArray[np.int64] | None = None
    # The graph whose features were replaced to make this one.
    made_of: Callable[[], Graph | None] | None = None
    # What follows from the graph alone.
    derived: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.adjacency = frozen(self.adjacency)
        self.features = frozen(self.features)
        if self.parent_nodes is not None:
            self.parent_nodes = frozen(self.parent_nodes)
        if self.node_names is not None:
            self.node_names = frozen(self.node_names)

    @cached_property
    def all_nodes(self) -> NDArray[np.int64]:
        """The numbers of all nodes."""
        return frozen(np.arange(self.adjacency.shape[0], dtype=np.int64))

    @cached_property
    def node_of_name(self) -> dict[Any, int]:
        """Each node by its name."""
        if self.node_names is None:
            raise NodeNameError(
                "the nodes of this graph have no names: give node_names to Graph, or "
                "read the graph with Graph.from_pandas or Graph.read"
            )
        return {name: i for i, name in enumerate(self.node_names.tolist())}

    @cached_property
    def fingerprint(self) -> str:
        """A hash of adjacency and features, the same in every process."""
        digest = hashlib.blake2b(digest_size=16)
        for matrix in (self.adjacency, self.features):
            parts: list[Any] = [matrix]
            if sp.issparse(matrix):
                parts = [matrix.indptr, matrix.indices, matrix.data]
            digest.update(repr((matrix.shape, [p.dtype.str for p in parts])).encode())
            for part in parts:
                digest.update(part)
        return digest.hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        lost = {"all_nodes", "node_of_name", "made_of", "derived"}
        return {name: part for name, part in vars(self).items() if name not in lost}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Once, what was not worked out yet stood there as None.
        there = {name: part for name, part in state.items() if part is not None}
        self.__dict__.update(there, derived={})
        # NumPy's pickles forget that an array was read-only.
        self.__post_init__()


def frozen(array: Any) -> Any:
    """Give a read-only view; the array itself, maybe the caller's, stays as it is."""
    if sp.issparse(array):
        view = sp.csr_array(array.shape, dtype=array.dtype)
        view.data, view.indices, view.indptr = (
            frozen(part) for part in (array.data, array.indices, array.indptr)
        )
        view.has_canonical_format = True
        return view
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view
