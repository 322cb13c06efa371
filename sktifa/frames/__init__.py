"""Data frames and files: parts of a graph in, what is predicted by name out."""

from sktifa.frames.encoder import TableEncoder
from sktifa.frames.join import GraphParts, join, labels_of
from sktifa.frames.named import by_name
from sktifa.frames.table import (
    Column,
    Table,
    as_table,
    column_of,
    read_table,
    write_table,
)

__all__ = [
    "Column",
    "GraphParts",
    "Table",
    "TableEncoder",
    "as_table",
    "by_name",
    "column_of",
    "join",
    "labels_of",
    "read_table",
    "write_table",
]
