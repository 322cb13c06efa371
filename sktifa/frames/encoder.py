"""Columns of any kind as node features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.validation import check_is_fitted

from sktifa.callers import warn_user
from sktifa.exceptions import GraphError, GraphWarning
from sktifa.frames.table import Column, Table, as_table

__all__ = ["TableEncoder", "check_columns", "listed", "warn_of_empty"]

# What is said of the columns that are treated alike.
_SAID = {
    "amount": "standardised",
    "flag": "kept, as they are 0 and 1",
    "category": "one feature a category",
    "text": "text, taken apart into pieces of letters",
    "empty": "left out, as no row has a value",
}


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode the columns of a table as features that a network can learn from.

    - Numbers, dates and durations: the median where missing, then standardised.
    - Yes and no, 0 and 1: the more frequent where missing, else as they are.
    - Categories, and text of few values: one feature a value, and one for missing.
    - Text of many values: latent semantic analysis of pieces of 3 and 4 letters.

    Where numbers and flags are missing, one more feature says so. A column without
    any value is left out with a warning.

    Parameters
    ----------
    max_categories : int, default=40
        Text of more values is taken apart; the rarest of more categories share a
        feature.
    n_components : int, default=30
        Features that a text is taken apart into.

    Attributes
    ----------
    report_ : list of str
        What was done with which columns.
    n_features_in_ : int
        Number of columns.

    Examples
    --------
    >>> import pandas as pd
    >>> from sktifa.frames import TableEncoder
    >>> table = pd.DataFrame({"age": [20, 40, None], "town": ["Ulm", "Bern", "Ulm"]})
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'missingindicator_age', 'town_Bern', 'town_Ulm']
    >>> encoder.transform(table).round(1)
    array([[-1.2,  0. ,  0. ,  1. ],
           [ 1.2,  0. ,  1. ,  0. ],
           [ 0. ,  1. ,  0. ,  1. ]], dtype=float32)
    """

    def __init__(self, max_categories: int = 40, n_components: int = 30) -> None:
        self.max_categories = max_categories
        self.n_components = n_components

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn how to encode each column.

        Parameters
        ----------
        X : DataFrame, one row a node
            Of pandas, polars or pyarrow.
        y : None
            Ignored.

        Returns
        -------
        self

        Raises
        ------
        GraphError
            If a column holds what can't be encoded, or an infinite number.
        """
        table = as_table(X, "X")
        check_columns(table, table.columns)
        warn_of_empty(table, table.columns)
        self.columns_ = list(table.columns)
        self.n_features_in_ = len(self.columns_)
        groups: dict[str, list[Any]] = {treatment: [] for treatment in _SAID}
        for name in self.columns_:
            groups[self._treatment(table[name])].append(name)
        amounts, flags = groups["amount"], groups["flag"]
        scaled = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
        one_hot = OneHotEncoder(
            max_categories=self.max_categories,
            handle_unknown="infrequent_if_exist",
            sparse_output=False,
        )
        blocks = [
            (_numbers, amounts, scaled),
            (_numbers, flags, SimpleImputer(strategy="most_frequent")),
            (_numbers, amounts + flags, MissingIndicator(error_on_new=False)),
            (_categories, groups["category"], one_hot),
            *((_text, [name], self._pieces()) for name in groups["text"]),
        ]
        self.blocks_ = [
            (read, names, block.fit(read(table, names)))
            for read, names, block in blocks
            if names
        ]
        self.report_ = [
            f"{_SAID[treatment]}: {listed(names)}"
            for treatment, names in groups.items()
            if names
        ]
        gaps = [name for name in amounts + flags if table[name].missing.any()]
        if gaps:
            self.report_.append(f"missing values filled, and marked: {listed(gaps)}")
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Encode each column as it was learnt.

        Parameters
        ----------
        X : DataFrame, one row a node
            With the columns of `fit`; others are not looked at.

        Returns
        -------
        ndarray of float32, shape (n_nodes, n_features)

        Raises
        ------
        GraphError
            If a column is not there, or holds something else than in `fit`.
        """
        check_is_fitted(self)
        table = as_table(X, "X")
        for name in self.columns_:
            table.require(name, "features")
        check_columns(table, self.columns_)
        encoded = [
            np.asarray(block.transform(read(table, names)), dtype=np.float32)
            for read, names, block in self.blocks_
        ]
        return np.hstack([np.empty((len(table), 0), dtype=np.float32), *encoded])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the features.

        Parameters
        ----------
        input_features : None
            Ignored.

        Returns
        -------
        ndarray of str objects
        """
        check_is_fitted(self)
        out: list[str] = []
        for read, names, block in self.blocks_:
            if read is _text:
                out += [f"{names[0]}_{i}" for i in range(block[-1].n_components)]
            else:
                columns = np.array([str(name) for name in names], dtype=object)
                out += block.get_feature_names_out(columns).tolist()
        return np.array(out, dtype=object)

    def _treatment(self, column: Column) -> str:
        known = column.values[~column.missing]
        if not len(known):
            return "empty"
        if column.kind == "flag":
            return "flag"
        if column.kind in ("number", "time"):
            return "flag" if np.isin(known, (0, 1)).all() else "amount"
        if column.kind == "text" and len(set(known)) > self.max_categories:
            return "text"
        return "category"

    def _pieces(self) -> Pipeline:
        return make_pipeline(
            HashingVectorizer(
                analyzer="char_wb",
                ngram_range=(3, 4),
                n_features=2**16,
                alternate_sign=False,
                norm=None,
            ),
            TfidfTransformer(sublinear_tf=True),
            TruncatedSVD(self.n_components, random_state=0),
        )


def check_columns(table: Table, names: Iterable[Any]) -> None:
    """Check that columns can be encoded, and hold no infinite number."""
    for name in names:
        values = table[name].values
        if values.dtype.kind == "f" and np.isinf(values).any():
            at = int(np.isinf(values).argmax())
            raise GraphError(
                f"{table.place(at)} has {values[at]} in column {name!r}: features must "
                "be finite; leave the field empty where the value isn't known"
            )


def warn_of_empty(table: Table, names: Iterable[Any]) -> None:
    """Warn of columns without any value, which make no features."""
    empty = [name for name in names if table[name].missing.all()]
    if empty and len(table):
        warn_user(
            f"no row of {table.name} has a value in {listed(empty)}: such columns make "
            "no features",
            GraphWarning,
        )


def listed(names: Iterable[Any]) -> str:
    """Name some columns, and say how many more there are."""
    shown = [str(name) for name in names]
    more = len(shown) - 8
    return ", ".join(shown[:8]) + (f" and {more} more" if more > 0 else "")


def _numbers(table: Table, names: list[Any]) -> NDArray[np.float64]:
    matrix = np.empty((len(table), len(names)))
    for i, name in enumerate(names):
        column = table[name]
        if column.kind in ("text", "category") and not column.missing.all():
            at = int((~column.missing).argmax())
            raise GraphError(
                f"column {name!r} holds numbers, but {table.place(at)} has "
                f"{column.values[at]!r}: mend it, or name the columns with features="
            )
        matrix[:, i] = np.nan if column.values.dtype == object else column.values
    return matrix


def _categories(table: Table, names: list[Any]) -> NDArray[Any]:
    matrix = np.empty((len(table), len(names)), dtype=object)
    for i, name in enumerate(names):
        values: Any = table[name].values
        if values.dtype != object:
            # Codes that were text in fit, such as A7 and 12, may all be numbers here.
            values = [None if v != v else _plain(v) for v in values.tolist()]
        matrix[:, i] = values
    return matrix


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _text(table: Table, names: list[Any]) -> list[str]:
    return ["" if text is None else str(text) for text in table[names[0]].values]
