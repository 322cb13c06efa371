"""Sparse matrices that would crash what converts them, in every format."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from sktifa.checks import check_adjacency, check_sparse
from sktifa.exceptions import GraphError

DENSE = np.kron([[1.0, 0, 2], [0, 0, 3]], [[1, 2], [0, 4]]).astype(np.float32)
COMPRESSED = ["csr", "csc", "bsr"]


def made(format, container=sp.csr_array):
    if format == "bsr":
        return sp.bsr_array(DENSE, blocksize=(2, 2))
    return container(DENSE).asformat(format).copy()


def damaged(format, **parts):
    """Change parts behind the container's back, as whoever wraps buffers does."""
    matrix = made(format)
    for name, change in parts.items():
        setattr(matrix, name, change(getattr(matrix, name).copy()))
    return matrix


def put(position, value):
    def change(array):
        array[position] = value
        return array

    return change


@pytest.mark.parametrize("container", [sp.csr_array, sp.csr_matrix])
@pytest.mark.parametrize("format", [*COMPRESSED, "coo", "dia", "dok", "lil"])
@pytest.mark.parametrize("duplicates", ["sum", "keep"])
def test_every_format_keeps_its_values(format, container, duplicates):
    checked = check_sparse(made(format, container), "it", duplicates=duplicates)
    assert isinstance(checked, sp.csr_array)
    assert checked.dtype == np.float32
    assert checked.indices.dtype == checked.indptr.dtype == np.int32
    assert_array_equal(checked.toarray(), DENSE)


@pytest.mark.parametrize("format", COMPRESSED)
@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ({"indices": put(0, 10**8)}, "it has an entry in row .*its shape is"),
        ({"indices": put(-1, -3)}, "it has an entry in row .*its shape is"),
        ({"indptr": put(1, 10**8)}, "indptr must rise"),
        ({"indptr": put(1, -1)}, "indptr must rise"),
        ({"indptr": put(0, 1)}, "indptr must rise"),
        ({"indptr": put(-1, 10**6)}, "indptr must rise"),
        ({"indptr": lambda a: a[:1]}, "indptr must rise"),
        ({"indptr": lambda a: a[:0]}, "indptr must rise"),
        ({"indptr": lambda a: a.astype(float)}, "integers in one dimension"),
        ({"indices": lambda a: a[:1]}, "indptr must rise"),
        ({"indices": lambda a: a.astype(float)}, "integers in one dimension"),
        ({"indices": lambda a: a[None]}, "integers in one dimension"),
        ({"data": lambda a: a[:1]}, "indptr must rise"),
        ({"data": lambda a: a * 1j}, "real numbers, got dtype complex"),
        ({"data": lambda a: a.astype(object)}, "real numbers, got dtype object"),
        ({"data": put(0, np.nan)}, "nan in row 0, column 0"),
        ({"data": lambda a: a.astype(float) * 1e300}, r"inf in .*in float32"),
    ],
)
def test_damage_is_named(format, parts, match):
    with pytest.raises(GraphError, match=match):
        check_sparse(damaged(format, **parts), "it")


@pytest.mark.parametrize("change", [lambda c: c + 100, lambda c: c - 100])
def test_coordinates_outside(change):
    matrix = made("coo")
    matrix.coords = (matrix.coords[0], change(matrix.coords[1]))
    with pytest.raises(GraphError, match="it has an entry in row 0, column .*00, but"):
        check_sparse(matrix, "it")


def test_coordinates_of_other_lengths():
    matrix = made("coo")
    matrix.coords = (matrix.coords[0][:2], matrix.coords[1])
    with pytest.raises(GraphError, match="2 rows"):
        check_sparse(matrix, "it")


def test_lists_that_do_not_fit_each_other():
    matrix = made("lil")
    matrix.rows[0].append(1)
    with pytest.raises(GraphError, match="values are missing"):
        check_sparse(matrix, "it")
    matrix = made("lil")
    matrix.rows[0] = [3000] * len(matrix.data[0])
    with pytest.raises(GraphError, match="row 0, column 3000"):
        check_sparse(matrix, "it")


def test_diagonals_that_do_not_fit_their_offsets():
    matrix = made("dia")
    matrix.offsets = matrix.offsets[:1]
    with pytest.raises(GraphError, match="values are missing"):
        check_sparse(matrix, "it")


def test_keys_outside():
    matrix = made("dok")
    matrix._dict[(500, 0)] = 1.0
    with pytest.raises(GraphError, match="damaged.*500"):
        check_sparse(matrix, "it")


def test_not_a_matrix():
    with pytest.raises(GraphError, match=r"must be a matrix, got shape \(3,\)"):
        check_sparse(sp.coo_array(np.ones(3)), "it")


@pytest.mark.parametrize("format", ["csr", "csc", "coo"])
def test_float16_is_read(format):
    matrix = damaged(format, data=lambda a: a.astype(np.float16))
    assert_array_equal(check_sparse(matrix, "it").toarray(), DENSE)


def test_nothing_of_the_callers_is_changed():
    parts = np.array([1.0, 2, 3, 4], np.float32), np.array([3, 1, 1, 0]), [0, 3, 4]
    matrix = sp.csr_array(parts, shape=(2, 4))
    matrix.indices.flags.writeable = False
    checked = check_sparse(matrix, "it")
    assert_array_equal(checked.toarray(), [[0, 5, 0, 1], [4, 0, 0, 0]])
    assert checked.has_canonical_format
    assert_array_equal(matrix.indices, [3, 1, 1, 0])
    assert matrix.nnz == 4
    kept = check_sparse(matrix, "it", duplicates="keep")
    assert kept.nnz == 4


def test_good_arrays_are_shared():
    matrix = sp.csr_array(DENSE)
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    checked = check_sparse(matrix, "it")
    assert np.shares_memory(checked.data, matrix.data)
    assert np.shares_memory(checked.indices, matrix.indices)


@pytest.mark.parametrize(
    ("adjacency", "match"),
    [
        (np.eye(2), "must be a sparse matrix, got ndarray"),
        (sp.csr_array((2, 3)), r"square, got shape \(2, 3\)"),
        (sp.csr_array([[0, -1.0], [-1, 0]]), "-1.0 in row 0, column 1"),
        (sp.csr_array([[0, 2.0], [1, 0]]), "2.0 in row 0, column 1 but 1.0 the other"),
        (sp.csr_array([[0, np.nan], [np.nan, 0]]), "nan in row 0, column 1"),
    ],
)
def test_what_is_no_adjacency(adjacency, match):
    with pytest.raises(GraphError, match=match):
        check_adjacency(adjacency)
