"""Tables of any make, column by column, that know where each row stands.

A data frame (pandas, polars, pyarrow: whatever narwhals reads) or a file becomes a
`Table`. What a column holds is told when it is asked for: an id stays as it is
written, while a feature is read as numbers, categories or points in time.
"""

from __future__ import annotations

import csv
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from sktifa.exceptions import (
    DatasetError,
    GraphError,
    MissingPackageError,
    ParameterError,
)
from sktifa.files import whole_file

__all__ = ["Column", "Table", "as_table", "column_of", "read_table", "write_table"]

Kind = Literal["number", "flag", "text", "category", "time"]

# What stands in files where nothing is known; pandas reads the same as missing.
MISSING = frozenset(
    ["", "#N/A", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"]
)
TEXT_FILES = (".csv", ".tsv", ".txt")
PARQUET_FILES = (".parquet", ".pq")

# So few lists are gone before the garbage collector counts them and looks at all.
_ROWS_AT_ONCE = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?")


@dataclass(frozen=True)
class Column:
    """What a column holds.

    Flags are yes or no; times are dates, points in time and spans of it. Values are
    integers, where none is missing; else float64 with NaN (flags as 0 and 1, times in
    seconds), or for text and categories objects with None.
    """

    kind: Kind
    values: NDArray[Any]

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which rows have no value."""
        if self.values.dtype == object:
            return np.array([value is None for value in self.values], dtype=bool)
        return np.isnan(self.values)


class Table(ABC):
    """Columns by name.

    Messages call it by its `name`: "nodes", or that of a file.
    """

    def __init__(self, name: str, columns: Sequence[Any], n_rows: int) -> None:
        self.name, self.columns, self.n_rows = name, list(columns), n_rows

    def __len__(self) -> int:
        return self.n_rows

    def place(self, row: int) -> str:
        """Say where a row stands."""
        return f"row {row} of {self.name}"

    def require(self, column: Any, parameter: str) -> None:
        """Raise a GraphError if there is no such column."""
        if column not in self.columns:
            raise GraphError(
                f"{self.name} has no column {column!r}, but {self.columns}: name the "
                f"right one with {parameter}="
            )

    def id_column(self) -> Any:
        """Return the column that has the ids in a file: "id", or else the first."""
        return "id" if "id" in self.columns else self.columns[0]

    def select(self, columns: Sequence[Any]) -> Table:
        """Return the table with some of its columns."""
        part = copy(self)
        part.columns = list(columns)
        return part

    @abstractmethod
    def ids(self, column: Any) -> NDArray[Any]:
        """Return a column as ids: int64 where all are whole numbers, else objects.

        None stands where there is no id.
        """

    @abstractmethod
    def __getitem__(self, column: Any) -> Column:
        """Return what a column holds; a GraphError if it can't be told."""

    @abstractmethod
    def frame(self, columns: Sequence[Any]) -> Any:
        """Return some columns as a data frame for other libraries."""

    def index(self) -> NDArray[Any] | None:
        """Return the ids in a pandas index, if it holds ids.

        Whole numbers without a name that count the rows, or stand beside a column
        "id", are what selecting rows has left of row numbers.
        """
        return None


class FrameTable(Table):
    """A data frame."""

    def __init__(self, native: Any, name: str) -> None:
        try:
            self._frame = nw.from_native(native, eager_only=True)
            columns = self._frame.columns
        except Exception as error:  # narwhals has a dozen, of several bases
            raise GraphError(
                f"{name} must be a data frame of pandas, polars or pyarrow, with one "
                f"name a column; got {type(native).__name__} ({error})"
            ) from error
        self._native = native
        super().__init__(name, columns, len(self._frame))

    def ids(self, column: Any) -> NDArray[Any]:
        series = self._frame.get_column(column)
        if series.dtype.is_integer() and not series.null_count():
            return _int64_or_objects(series.to_numpy())
        return _ids(_objects(series))

    def __getitem__(self, column: Any) -> Column:
        series = self._frame.get_column(column)
        dtype = series.dtype
        if dtype.is_integer() and not series.null_count():
            return Column("number", series.to_numpy())
        if dtype.is_numeric():
            return Column("number", _float64(series))
        if dtype == nw.Boolean:
            return Column("flag", _float64(series))
        if dtype == nw.Date:
            series, dtype = series.cast(nw.Datetime("us")), nw.Datetime("us")
        if dtype == nw.Datetime:
            return Column("time", _float64(series.dt.timestamp("us")) / 1e6)
        if dtype == nw.Duration:
            return Column("time", _float64(series.dt.total_microseconds()) / 1e6)
        values = _objects(series)
        if dtype in (nw.Categorical, nw.Enum):
            return Column("category", _as_text(values))
        return column_of(values, f"column {column!r} of {self.name}")

    def frame(self, columns: Sequence[Any]) -> Any:
        if not hasattr(self._native, "dtypes"):
            # What is not of pandas or polars is little known to other libraries.
            return self._native.select(list(columns)).to_pandas()
        chosen = self._native[list(columns)]
        # So is what has numbers for names.
        return chosen.rename(columns=str) if hasattr(chosen, "iloc") else chosen

    def index(self) -> NDArray[Any] | None:
        index = getattr(self._native, "index", None)
        if index is None or not hasattr(index, "tolist"):
            return None
        ids = _ids(index.tolist())
        if index.name is not None or ids.dtype != np.int64:
            return ids
        counts = "id" in self.columns or np.array_equal(ids, np.arange(len(ids)))
        return None if counts else ids


class FileTable(Table):
    """A file of separated values, every field as it is written."""

    def __init__(
        self, name: str, columns: dict[str, list[str]], lines: NDArray[np.int64]
    ) -> None:
        super().__init__(name, list(columns), len(lines))
        self._fields, self._lines = columns, lines
        self._told: dict[str, Column] = {}

    def place(self, row: int) -> str:
        return f"line {self._lines[row]} of {self.name}"

    def ids(self, column: str) -> NDArray[Any]:
        fields = [field.strip() or None for field in self._fields[column]]
        try:
            # 007 and 7 are two ids.
            if all(str(int(field)) == field for field in fields):  # type: ignore[arg-type]
                return _int64_or_objects(np.array([int(f) for f in fields]))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            pass
        return _object_array(fields)

    def __getitem__(self, column: str) -> Column:
        if column not in self._told:
            self._told[column] = self._tell(column)
        return self._told[column]

    def _tell(self, column: str) -> Column:
        fields = [field.strip() for field in self._fields[column]]
        known = [field for field in fields if field not in MISSING]
        if not known:
            return Column("text", _object_array([None] * len(fields)))
        # Zip codes and the like are no amounts.
        if not any(len(f) > 1 and f[0] == "0" and f.isdigit() for f in known):
            filled = ["nan" if field in MISSING else field for field in fields]
            for dtype in (np.int64, np.float64):
                try:
                    return Column("number", np.array(filled).astype(dtype))
                except (ValueError, OverflowError):
                    continue
        values: list[Any] = [None if field in MISSING else field for field in fields]
        if {field.lower() for field in known} <= {"true", "false"}:
            values = [v if v is None else v.lower() == "true" for v in values]
        elif all(_ISO_DATE.fullmatch(field) for field in known):
            with suppress(ValueError):  # the 31st of a month with 30 days, say
                values = [v and datetime.fromisoformat(v) for v in values]
        return column_of(values, f"column {column!r} of {self.name}")

    def frame(self, columns: Sequence[str]) -> Any:
        import pandas as pd

        typed = {name: self[name] for name in columns}
        return pd.DataFrame(
            {
                name: pd.to_datetime(column.values, unit="s")
                if column.kind == "time"
                else column.values
                for name, column in typed.items()
            }
        )


def as_table(frame: Any, name: str) -> Table:
    """Make a table of any frame that narwhals reads; a table is returned as it is.

    Examples
    --------
    >>> import pandas as pd
    >>> from sktifa.frames import as_table
    >>> table = as_table(pd.DataFrame({"size": [1.5, None]}), "nodes")
    >>> table["size"]
    Column(kind='number', values=array([1.5, nan]))
    """
    return frame if isinstance(frame, Table) else FrameTable(frame, name)


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read a file of separated values (with a header) or of Parquet.

    Its name ends in .csv, .tsv or .txt (UTF-8, separated by commas, semicolons or tabs)
    or in .parquet or .pq (pyarrow reads it). What is wrong with it names the line.
    """
    path = Path(path)
    if not path.is_file():
        raise DatasetError(f"there is no file {path}")
    if path.suffix.lower() in PARQUET_FILES:
        return _read_parquet(path)
    if path.suffix.lower() in TEXT_FILES:
        return _read_text(path)
    raise ParameterError(
        f"{path} is neither text nor Parquet by its ending: give a file that ends in "
        f"{', '.join(TEXT_FILES + PARQUET_FILES)}"
    )


def write_table(columns: Mapping[str, Iterable[Any]], path: Path) -> None:
    """Write columns of one length to a file, as CSV or Parquet by its ending.

    The file appears whole or not at all.
    """
    with whole_file(path) as part:
        if path.suffix.lower() in PARQUET_FILES:
            parquet = require_parquet()
            import pyarrow

            table = pyarrow.table({k: list(v) for k, v in columns.items()})
            parquet.write_table(table, part)
            return
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        with open(part, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*columns.values(), strict=True))


# ------------------------------------------------------------------- files in


def _read_text(path: Path) -> FileTable:
    name = path.name
    lines: list[int] = []
    rows: list[list[str]] = []
    try:
        # utf-8-sig: Excel puts a byte-order mark in front of the first name.
        with open(path, newline="", encoding="utf-8-sig") as file:
            head = file.readline()
            delimiter = max(",;\t", key=head.count)
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            header = [field.strip() for field in next(reader, [])]
            _check_header(header, name)
            columns: list[list[str]] = [[] for _ in header]
            before = reader.line_num
            for row in reader:
                if row:
                    if len(row) != len(header):
                        raise GraphError(
                            f"line {before + 1} of {name} has {len(row)} fields, the "
                            f"header has {len(header)}: mend the line (a field with "
                            f"{delimiter!r} in it stands in quotes)"
                        )
                    rows.append(row)
                    lines.append(before + 1)
                before = reader.line_num
                if len(rows) == _ROWS_AT_ONCE:
                    _move(rows, columns)
            _move(rows, columns)
    except csv.Error as error:
        raise GraphError(
            f"line {reader.line_num} of {name} can't be read ({error}): mend its quotes"
        ) from error
    except UnicodeDecodeError as error:
        raise GraphError(
            f"line {_first_undecodable(path)} of {name} is not UTF-8: save the file "
            "as UTF-8"
        ) from error
    return FileTable(
        name, dict(zip(header, columns, strict=True)), np.array(lines, dtype=np.int64)
    )


def _move(rows: list[list[str]], columns: list[list[str]]) -> None:
    """Move rows to columns, where they are no lists of their own any more."""
    for column, fields in zip(columns, zip(*rows, strict=True), strict=False):
        column.extend(fields)
    rows.clear()


def _check_header(header: list[str], name: str) -> None:
    if not header:
        raise GraphError(f"{name} is empty: its first line must name the columns")
    for column in header:
        if header.count(column) > 1:
            raise GraphError(
                f"line 1 of {name} has the column {column!r} twice: rename one"
            )


def _first_undecodable(path: Path) -> int:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8-sig")
            except UnicodeDecodeError:
                return number
    return 0


def _read_parquet(path: Path) -> FrameTable:
    parquet = require_parquet()
    try:
        return FrameTable(parquet.read_table(path), path.name)
    except (OSError, ValueError) as error:
        if isinstance(error, GraphError):
            raise
        raise GraphError(f"{path} can't be read as Parquet: {error}") from error


def require_parquet() -> Any:
    """Return what reads and writes Parquet files, or raise a MissingPackageError."""
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "Parquet files need pyarrow: pip install sktifa[parquet], or use CSV"
        ) from error
    return pyarrow.parquet


# ------------------------------------------------------------------ values in


def _float64(series: Any) -> NDArray[np.float64]:
    return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _objects(series: Any) -> list[Any]:
    """Return values as Python objects, None where one is missing."""
    missing = series.is_null().to_list()
    return [
        None if gone or _is_nan(value) else value
        for value, gone in zip(series.to_list(), missing, strict=True)
    ]


def _object_array(values: Sequence[Any]) -> NDArray[Any]:
    return np.fromiter(values, dtype=object, count=len(values))


def _as_text(values: Sequence[Any]) -> NDArray[Any]:
    return _object_array([None if v is None else str(v) for v in values])


def _ids(values: Sequence[Any]) -> NDArray[Any]:
    """Take whole floats for the integers that they were before a gap came in."""
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    if whole and all(isinstance(v, (int, np.integer)) for v in whole):
        return _int64_or_objects(np.array(whole))
    return _object_array([None if _is_nan(v) else v for v in whole])


def _int64_or_objects(ids: NDArray[Any]) -> NDArray[Any]:
    if np.can_cast(ids.dtype, np.int64) and ids.dtype != bool:
        return ids.astype(np.int64)
    return _object_array(ids.tolist())


def column_of(values: Sequence[Any], where: str) -> Column:
    """Tell what Python objects are, None where one is missing.

    They may be numbers, text, flags, times, or text and numbers mixed.

    Examples
    --------
    >>> from sktifa.frames.table import column_of
    >>> column_of([True, None], "ok").kind
    'flag'
    """
    values = [None if _is_nan(value) else value for value in values]
    known = [value for value in values if value is not None]
    if all(isinstance(value, str) for value in known):
        return Column("text", _object_array(values))
    if all(isinstance(value, (bool, np.bool_)) for value in known):
        return Column("flag", _numbers(values, float))
    if all(isinstance(value, (int, np.integer)) for value in values):
        return Column("number", np.array(values))
    if all(isinstance(value, Real) or _is_decimal(value) for value in known):
        return Column("number", _numbers(values, float))
    if all(isinstance(value, date) for value in known):
        return Column("time", _numbers(values, _seconds))
    if all(isinstance(value, timedelta) for value in known):
        return Column("time", _numbers(values, timedelta.total_seconds))
    for value in known:
        if not (isinstance(value, (str, Real, date)) or _is_decimal(value)):
            raise GraphError(
                f"{where} holds objects of type {type(value).__name__}: make columns "
                "of numbers, text or dates of them, or leave it out with features="
            )
    return Column("category", _as_text(values))


def _numbers(values: list[Any], convert: Any) -> NDArray[np.float64]:
    return np.array([np.nan if v is None else convert(v) for v in values], dtype=float)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def _is_decimal(value: Any) -> bool:
    return type(value).__name__ == "Decimal"


def _seconds(when: date) -> float:
    """Return seconds since 1970; a time without a zone is taken for UTC."""
    if not isinstance(when, datetime):
        when = datetime(when.year, when.month, when.day)
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return (when - _EPOCH).total_seconds()
