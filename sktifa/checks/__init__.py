"""The checks of arrays and matrices at every door, before anything converts them.

A compiled routine that is given an index outside its matrix writes where it must not:
what comes from outside passes here first. Nothing of the caller's is changed.
"""

from sktifa.checks.arrays import as_array, as_numbers
from sktifa.checks.matrices import check_adjacency, check_matrix, check_rows
from sktifa.checks.numbers import check_count, check_real
from sktifa.checks.positions import check_positions
from sktifa.checks.sparse import check_sparse, is_sparse, place_of

__all__ = [
    "as_array",
    "as_numbers",
    "check_adjacency",
    "check_count",
    "check_matrix",
    "check_positions",
    "check_real",
    "check_rows",
    "check_sparse",
    "is_sparse",
    "place_of",
]
