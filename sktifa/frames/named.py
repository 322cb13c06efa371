"""What a model returns, beside the names of the nodes that it is about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sktifa.exceptions import MissingPackageError

__all__ = ["by_name"]


def by_name(
    values: NDArray[Any],
    names: Any,
    columns: Iterable[Any] | None = None,
    library: Literal["pandas", "polars"] = "pandas",
    title: str | None = None,
) -> Any:
    """Put one value or row beside each name.

    Names become the index, or in polars, which has none, the column "node". `columns`
    names the columns of a table, `title` a single one.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.frames import by_name
    >>> by_name(np.array(["x", "y"]), np.array(["ann", "bob"], dtype=object))["bob"]
    'y'
    """
    try:
        if library == "polars":
            import polars as pl
        else:
            import pandas as pd
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"results by name need {library}: pip install {library}, or put "
            "graph.node_names[graph.nodes] beside the values"
        ) from error

    if library == "polars":
        table = values[:, None] if values.ndim == 1 else values
        heads = [title or "value"]
        if values.ndim == 2:
            heads = [str(i) for i in range(table.shape[1])]
        if columns is not None:
            heads = [str(column) for column in columns]
        of_names = "node"
        while of_names in heads:  # there is a class of this name
            of_names += "_"
        named = np.asarray(names)
        # Objects of mixed types, which an index may hold, are no column of polars'.
        listed = [str(v) for v in named] if named.dtype.kind == "O" else named.tolist()
        return pl.DataFrame(
            {
                of_names: listed,
                **{
                    head: pl.Series(column.tolist(), strict=False)
                    for head, column in zip(heads, table.T, strict=True)
                },
            }
        )
    index = names
    if not isinstance(names, pd.Index):
        index = pd.Index(names, name="node", tupleize_cols=False)
    if values.ndim == 1 and columns is None:
        return pd.Series(values, index=index, name=title)
    return pd.DataFrame(
        values, index=index, columns=None if columns is None else list(columns)
    )
