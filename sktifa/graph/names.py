"""Names of nodes, and tables whose rows they name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from sktifa.exceptions import GraphError

__all__ = [
    "as_list",
    "called",
    "clean_node_names",
    "in_order_of_nodes",
    "in_order_of_rows",
    "plural",
    "row_names",
]


def row_names(frame: Any) -> list[Any] | None:
    """Return the names of a pandas frame's rows, if they are more than numbers."""
    if not (hasattr(frame, "iloc") and hasattr(frame, "columns")):
        return None
    names = as_list(frame.index)
    return None if names == list(range(len(names))) else names


def in_order_of_rows(adjacency: Any, node_names: Any) -> tuple[Any, Any]:
    """Bring the columns of a frame into the order of its rows, which name the nodes."""
    if not (hasattr(adjacency, "iloc") and hasattr(adjacency, "columns")):
        return adjacency, node_names
    rows, columns = as_list(adjacency.index), as_list(adjacency.columns)
    if rows != columns:
        if len(set(rows)) < len(rows) or sorted(map(repr, rows)) != sorted(
            map(repr, columns)
        ):
            raise GraphError(
                "rows and columns of adjacency are not of the same names, each once: "
                "give adjacency.to_numpy() to go by position"
            )
        adjacency = adjacency[rows]
    names = row_names(adjacency)
    if names is None or node_names is None:
        return adjacency, names if node_names is None else node_names
    if names != as_list(node_names):
        raise GraphError(
            "the rows of adjacency have other names than node_names: leave node_names "
            "out, or give adjacency.to_numpy() to go by position"
        )
    return adjacency, node_names


def in_order_of_nodes(features: Any, node_names: Any) -> tuple[Any, Any]:
    """Bring the rows of a frame into the order of the nodes, which they name."""
    rows = row_names(features)
    if rows is None:
        return features, node_names
    if node_names is None:
        if all(type(row) is int for row in rows) and set(rows) == set(range(len(rows))):
            raise GraphError(
                "the rows of features are numbered, but not in order: use "
                "features.sort_index() if these are the nodes' numbers, "
                "features.reset_index(drop=True) if the rows are in their order"
            )
        return features, rows
    names = as_list(node_names)
    if rows == names:
        return features, names
    if len(set(rows)) < len(rows) or set(rows) != set(names):
        odd = next((row for row in rows if row not in set(names)), None)
        what = "lack nodes or name one twice" if odd is None else f"name {odd!r}"
        raise GraphError(
            f"the rows of features {what}: give each node one row, such as "
            "features.loc[node_names], or features.to_numpy() to go by position"
        )
    return features.loc[names], names


def clean_node_names(names: Iterable[Any] | None, n_nodes: int) -> Any:
    """Take names as an array of int64, or of objects that a dict can hold."""
    if names is None:
        return None
    given = as_list(names)
    if len(given) != n_nodes:
        raise GraphError(
            f"there are {len(given)} node_names for {plural(n_nodes, 'node')}: give "
            "every node of the whole graph one"
        )
    if all(type(name) is int for name in given):
        array = np.array(given)
    else:
        array = np.fromiter(given, dtype=object, count=n_nodes)
    seen: set[Any] = set()
    for at, name in enumerate(given):
        try:
            twice = name in seen
        except TypeError as error:
            raise GraphError(
                f"node_names[{at}] is {name!r}, which is not hashable: give text or "
                "numbers"
            ) from error
        if twice or name is None or name != name:
            what = "stands twice in node_names" if twice else "is no name"
            raise GraphError(
                f"node {name!r} {what} (at {at}): give every node a name of its own"
            )
        seen.add(name)
    return array


def as_list(names: Iterable[Any]) -> list[Any]:
    """Take names as plain Python objects, not as scalars of NumPy's or pandas'."""
    return names.tolist() if hasattr(names, "tolist") else list(names)


def called(node: Any, node_names: Any) -> str:
    """Return what a message calls a node: its name, or its number where it has none."""
    if node_names is None or len(node_names) <= node:
        return str(int(node))
    return repr(as_list(node_names)[node])


def plural(count: int, noun: str) -> str:
    """Write how many there are of something."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
