"""Tables of nodes and edges: data frames and files in, parts of a graph out."""

from sktifa.frames.encoder import TableEncoder
from sktifa.frames.join import GraphParts, join, labels_of
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
    "column_of",
    "join",
    "labels_of",
    "read_table",
    "write_table",
]
