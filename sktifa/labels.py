"""Labels of the nodes: any type in, codes out, unlabelled nodes marked."""

from __future__ import annotations

import numbers
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import _num_samples

from sktifa.callers import warn_user
from sktifa.checks import as_array
from sktifa.exceptions import GraphError, LabelError, LabelWarning, ParameterError
from sktifa.graph import Graph

__all__ = [
    "align_labels",
    "check_enough_classes",
    "class_weights",
    "encode_labels",
    "find_classes",
    "has_unlabelled",
    "is_labelled",
    "node_weights",
    "require_labels",
    "with_unlabelled",
]

MissingLabel = int | float | str | None
Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]
Weights = NDArray[np.float64]

_CONTAINERS = (set, frozenset, dict, list, tuple, np.ndarray)


def encode_labels(
    y: ArrayLike, missing_label: MissingLabel = -1, *, of: Any = None, name: str = "y"
) -> tuple[Codes, NDArray[Any]]:
    """Encode labels as numbers from 0, unlabelled nodes as -1; return also classes.

    Labels are of any type: whole numbers, strings, booleans; in lists, NumPy's arrays
    and masked arrays, tensors, pandas', polars' and Arrow's columns. `missing_label`,
    None, NaN, NaT, NA and masked entries mark an unlabelled node. The classes are the
    labels that occur, sorted, of their own type.

    There must be one label each for what they are `of`: a graph, a selection of one,
    rows or their number. Refused are also labels that can't name classes (fractions,
    infinities, types that don't compare), and none at all. Messages call them `name`.

    Examples
    --------
    >>> from sktifa.labels import encode_labels
    >>> encode_labels([3, -1, 7, 3])
    (array([ 0, -1,  1,  0]), array([3, 7]))
    """
    labels, missing = _read(y, missing_label, of, name)
    if missing.all():
        where = "" if name == "y" else f" in {name}"
        raise LabelError(
            f"none of the {len(labels)} nodes has a label{where}: label at least one "
            f"node of each class (missing_label={missing_label!r}, None and NaN mark "
            "unlabelled ones)."
        )
    known = labels[~missing]
    if known.dtype.kind == "f":
        _check_whole_numbers(labels, missing, name)
    _check_kind(known, name)
    try:
        classes, inverse = np.unique(known, return_inverse=True)
    except TypeError as error:
        raise LabelError(
            f"the labels of {name} are of types that don't compare ({error}): give all "
            f"of them one type, such as {name}.astype(str), and set missing_label to "
            "fit."
        ) from error
    codes = np.full(len(labels), -1, dtype=np.int64)
    codes[~missing] = inverse
    return codes, classes


def require_labels(y: Any, estimator: Any) -> Any:
    """Return labels; raise a LabelError if an estimator that needs some has none."""
    if y is None:
        raise LabelError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is "
            "None."
        )
    return y


def is_labelled(y: ArrayLike, missing_label: MissingLabel = -1) -> Mask:
    """Tell which entries of `y` are labels, as `encode_labels` does.

    Examples
    --------
    >>> from sktifa.labels import is_labelled
    >>> is_labelled([0, 1, -1])
    array([ True,  True, False])
    """
    return ~_read(y, missing_label, None, "y")[1]


def has_unlabelled(y: Any, missing_label: MissingLabel = -1) -> bool:
    """Tell whether labels mark a node as unlabelled; what are no labels marks none."""
    try:
        return not is_labelled(y, missing_label).all()
    except LabelError:
        return False


def with_unlabelled(y: ArrayLike, missing_label: MissingLabel = -1) -> NDArray[Any]:
    """Append an entry that is no label; None where there is none, as objects.

    Examples
    --------
    >>> from sktifa.labels import with_unlabelled
    >>> with_unlabelled([4, -1]).tolist()
    [4, None, None]
    """
    labels, missing = _read(y, missing_label, None, "y")
    longer = np.full(len(labels) + 1, None, dtype=object)
    longer[:-1][~missing] = labels[~missing]
    return longer


def find_classes(found: NDArray[Any], classes: NDArray[Any], name: str = "y") -> Codes:
    """Find labels of `encode_labels` among the classes of a fit.

    Returns their positions; -1 for a label that is none of the classes. Refused are
    strings among numbers, and numbers among strings.
    """
    if (found.dtype.kind in "OUS") != (classes.dtype.kind in "OUS"):
        raise LabelError(
            f"{name} has labels like {found.tolist()[0]!r}, but the classes are "
            f"{classes.tolist()}: give labels of the same type."
        )
    place = {label: i for i, label in enumerate(classes.tolist())}
    places = [place.get(label, -1) for label in found.tolist()]
    return np.array(places, dtype=np.int64)


def check_enough_classes(
    y: ArrayLike, codes: Codes, classes: NDArray[Any], missing_label: MissingLabel = -1
) -> None:
    """Check that there are two classes, and that no third one was taken for none.

    Warns where the classes may well be -1, 0 and 1, and -1 is `missing_label`. `codes`
    and `classes` are what `encode_labels` has made of `y`.
    """
    n_missing = int(np.count_nonzero(codes < 0))
    if len(classes) < 2:
        hint = ""
        if n_missing:
            hint = (
                f" The {n_missing} other entries count as unlabelled; if "
                f"missing_label={missing_label!r} is a class of yours, set "
                "missing_label=None."
            )
        raise LabelError(
            f"the labelled nodes are all of one class ({classes.tolist()[0]!r}): a "
            f"classifier needs at least 2 classes.{hint}"
        )
    if missing_label != -1 or classes.dtype.kind not in "iuf" or n_missing == 0:
        return
    n_marked = int(np.count_nonzero(_values(y, "y")[0] == -1))
    largest = np.bincount(codes[codes >= 0]).max()
    if classes.tolist() == [0, 1] and 0 < n_marked <= largest:
        warn_user(
            f"the {n_marked} entries that are -1 count as unlabelled, beside the "
            "classes 0 and 1: if -1 is a class too, set missing_label=None; if not, "
            "mark them with None or NaN, or select graph[labeled].",
            LabelWarning,
        )


def class_weights(
    class_weight: dict[Any, float] | Literal["balanced"] | None,
    codes: Codes,
    classes: NDArray[Any],
) -> Weights:
    """Work out the weight of each class.

    By label, 1 for labels that are not in the dict, or in inverse proportion to the
    number of nodes. Refused are weights that are negative or not finite, or given for
    what is no class while a class has none.
    """
    if class_weight is None:
        return np.ones(len(classes))
    if isinstance(class_weight, str):
        counts = np.bincount(codes[codes >= 0], minlength=len(classes))
        return counts.sum() / (len(classes) * np.maximum(counts, 1.0))
    labels = classes.tolist()
    # A fold may lack a class that has a weight.
    strangers = [label for label in class_weight if label not in labels]
    if strangers and not all(label in class_weight for label in labels):
        raise ParameterError(
            f"class_weight has {strangers[0]!r}, which is none of the classes "
            f"{labels}: name the classes as y does."
        )
    for label, weight in class_weight.items():
        if not (isinstance(weight, numbers.Real) and 0 <= weight < np.inf):
            raise ParameterError(
                f"class_weight[{label!r}] is {weight}: weights must be finite and not "
                "negative."
            )
    return np.array([class_weight.get(label, 1.0) for label in labels], dtype=float)


def node_weights(sample_weight: ArrayLike | None, n: int) -> Weights:
    """Check the weights of n nodes or rows, finite and not negative; None is 1."""
    if sample_weight is None:
        return np.ones(n)
    if np.ma.is_masked(sample_weight):
        raise LabelError(
            "sample_weight has masked entries: fill them, sample_weight.filled(0) "
            "leaves those nodes out."
        )
    given = _as_array(sample_weight, "sample_weight")
    try:
        weight = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise LabelError(f"sample_weight must hold numbers: {error}.") from error
    if weight.shape != (n,):
        raise LabelError(
            f"sample_weight has shape {weight.shape}, but there are {n} (selected) "
            "nodes: give one weight each."
        )
    bad = ~(np.isfinite(weight) & (weight >= 0))
    if bad.any():
        at = int(bad.argmax())
        sign = "Negative values in data: " if weight[at] < 0 else ""
        raise LabelError(
            f"{sign}sample_weight[{at}] is {weight[at]}: weights must be finite and "
            "not negative."
        )
    if not weight.any():
        raise LabelError("sample_weight is zero for every node: weigh some.")
    return weight


def align_labels(
    y: Any, graph: Graph, missing_label: MissingLabel = -1, name: str = "y"
) -> Any:
    """Put a Series of labels into the order of a graph's named nodes.

    That is, one of pandas whose index holds names of nodes: it may have no others then,
    and none twice. All else goes by position and is returned as it is: other arrays,
    and a Series with plain row numbers or with an index in which no node's name occurs.
    Selected nodes that `y` doesn't name get `missing_label` where it fits the dtype of
    `y`; None else. Nodes without names must not seem to be numbered in another order.
    """
    is_series = hasattr(y, "iloc") and getattr(y, "ndim", 0) == 1
    if not is_series or _is_row_numbers(y.index):
        return y
    names = graph.node_names
    if names is None:
        _check_order(y, graph, name)
        return y
    known = y.index.isin(names)
    # A node that is selected twice, as by a bootstrap, has two labels.
    if not known.any() or np.array_equal(y.index, names[graph.nodes]):
        return y
    if not known.all():
        stranger = y.index[int(known.argmin())]
        raise LabelError(
            f"{name} has a label for {stranger!r}, which is no node of the graph: drop "
            f"it, or give {name}.to_numpy() to go by position."
        )
    if not y.index.is_unique:
        twice = y.index[y.index.duplicated()][0]
        raise LabelError(f"{name} has node {twice!r} twice: keep one label a node.")
    place = y.index.get_indexer(names[graph.nodes])
    labels = y.to_numpy()
    there = place >= 0
    if there.all():
        return labels[place]
    if labels.dtype.kind in "iu" and isinstance(missing_label, (int, np.integer)):
        aligned = np.full(len(graph), missing_label, dtype=np.int64)
    else:
        aligned = np.full(len(graph), None, dtype=object)
    aligned[there] = labels[place[there]]
    return aligned


# ---------------------------------------------------------------- reading labels


def _read(
    y: Any, missing_label: MissingLabel, of: Any, name: str
) -> tuple[NDArray[Any], Mask]:
    """Return labels of their own type, and which entries are none."""
    if isinstance(of, Graph):
        y = align_labels(y, of, missing_label, name)
    y = _column(y, name)
    labels, missing = _values(y, name)
    if labels.ndim != 1:
        raise LabelError(
            f"{name} must be one-dimensional, one label a node, got shape "
            f"{labels.shape}: use {name}.ravel() if it has one column."
        )
    if of is not None:
        _check_length(len(labels), of, name)
    return labels, missing | _is_marked(labels, missing, missing_label, name)


def _column(y: Any, name: str) -> Any:
    """Take the only column of a table."""
    shape: tuple[int, ...] = tuple(getattr(y, "shape", ()))
    if len(shape) != 2 or shape[1] != 1:
        return y
    warn_user(
        f"A column-vector {name} was passed when a 1d array was expected. Please "
        f"change the shape of {name} to (n_samples,), for example using ravel().",
        DataConversionWarning,
    )
    if hasattr(y, "iloc"):
        return y.iloc[:, 0]
    return y.column(0) if hasattr(y, "to_pylist") else y[:, 0]


def _values(y: Any, name: str) -> tuple[NDArray[Any], Mask]:
    """Return the entries of any container, and which are null."""
    if isinstance(y, np.ma.MaskedArray):
        labels, null = _values(y.data, name)
        return labels, null | np.ma.getmaskarray(y)
    if hasattr(y, "isna") and getattr(y, "ndim", 1) == 1:  # pandas
        null = np.asarray(y.isna())
        return _filled(np.asarray(y[~null]), null), null
    if hasattr(y, "to_pylist"):  # Arrow
        y = y.to_pylist()
    elif hasattr(y, "drop_nulls"):  # polars
        y = y.to_list()
    labels = _as_array(y, name)
    if labels.dtype.kind == "T":  # NumPy's strings of any length
        labels = labels.astype(object)
    is_text = labels.dtype.kind in "US"
    if is_text and isinstance(y, (list, tuple)):
        # NumPy makes strings of the numbers, None and NaN among strings.
        if not all(isinstance(label, (str, bytes)) for label in y):
            labels = np.empty(len(y), dtype=object)
            labels[:] = y
    kind = labels.dtype.kind
    if kind == "O" and labels.ndim == 1:
        null = np.fromiter((_is_null(v) for v in labels), dtype=bool, count=len(labels))
        return _filled(labels[~null], null), null
    if kind == "f":
        return labels, np.isnan(labels)
    if kind in "mM":
        return labels, np.isnat(labels)
    return labels, np.zeros(labels.shape, dtype=bool)


def _filled(there: NDArray[Any], null: Mask) -> NDArray[Any]:
    """Put the labels that are there among placeholders for those that aren't."""
    if there.dtype == object:
        there = _natural(there)
    labels = np.zeros(len(null), dtype=there.dtype)
    labels[~null] = there
    return labels


def _natural(labels: NDArray[Any]) -> NDArray[Any]:
    """Give objects that are all numbers, or all booleans, the type of these."""
    types = {type(label) for label in labels}
    if not types:
        return labels
    if all(issubclass(t, (bool, np.bool_)) for t in types):
        return labels.astype(bool)
    if any(issubclass(t, (bool, np.bool_)) for t in types):
        return labels
    for kind, dtype in ((numbers.Integral, np.int64), (numbers.Real, np.float64)):
        if all(issubclass(t, kind) for t in types):
            try:
                return labels.astype(dtype)
            except OverflowError:
                return labels
    return labels


def _is_null(label: Any) -> bool:
    """Whether an object is None, NaN, NaT or pandas' NA (which compares as NA)."""
    if label is None or type(label).__name__ == "NAType":
        return True
    unequal = label != label
    return bool(unequal) if isinstance(unequal, (bool, np.bool_)) else False


def _is_marked(
    labels: NDArray[Any], null: Mask, missing_label: MissingLabel, name: str
) -> Mask:
    kind = labels.dtype.kind
    if kind == "O":
        marked = null.copy()
        marked[~null] = [label == missing_label for label in labels[~null]]
        return marked
    if kind in "US":
        # np.array(["a", -1]) has made a string of the -1.
        if not isinstance(missing_label, str) and (labels == str(missing_label)).any():
            raise LabelError(
                f"{name} is an array of strings and has the string '{missing_label}', "
                f"which is not missing_label={missing_label!r}: use dtype object, or "
                f"missing_label='{missing_label}'."
            )
        return labels == missing_label
    is_number = isinstance(missing_label, (int, float, np.number))
    if kind in "iuf" and is_number and not isinstance(missing_label, bool):
        return labels == missing_label
    return np.zeros(len(labels), dtype=bool)


def _check_length(n_labels: int, of: Any, name: str) -> None:
    n = of if isinstance(of, int) else _num_samples(of)
    if n_labels == n:
        return
    if not isinstance(of, Graph):
        raise LabelError(
            f"{name} has {n_labels} entries for {n} rows: give one label a row, "
            "missing_label where there is none."
        )
    hint = ""
    if n_labels == of.n_nodes:
        hint = f" ({name} covers the whole graph: index it like the graph, {name}[idx])"
    raise LabelError(
        f"{name} has {n_labels} entries, but {n} of the graph's {of.n_nodes} nodes are "
        "selected: give one label a selected node, missing_label where there is "
        f"none{hint}."
    )


def _check_order(y: Any, graph: Graph, name: str) -> None:
    """Refuse a Series whose index has the selected nodes' numbers in another order."""
    index = np.asarray(y.index)
    if index.dtype.kind not in "iu" or len(index) != len(graph):
        return
    nodes = graph.nodes
    if np.array_equal(index, nodes) or not np.array_equal(
        np.sort(index), np.sort(nodes)
    ):
        return
    raise LabelError(
        f"the index of {name} has the numbers of the nodes in another order: give "
        f"{name}.loc[graph.nodes] if it numbers nodes, {name}.to_numpy() to go by "
        "position."
    )


def _is_row_numbers(index: Any) -> bool:
    """Whether a pandas index only counts the rows."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1


def _as_array(values: Any, name: str) -> NDArray[Any]:
    try:
        return as_array(values, name)
    except GraphError as error:
        raise LabelError(f"{error}: give one entry a node.") from None


def _check_kind(labels: NDArray[Any], name: str) -> None:
    if labels.dtype.kind == "S" or any(isinstance(v, bytes) for v in _objects(labels)):
        raise LabelError(
            f"the labels of {name} are bytes: make strings of them, such as "
            f"np.char.decode({name})."
        )
    # Some of these compare, but not all with all.
    bad = next((v for v in _objects(labels) if isinstance(v, _CONTAINERS)), None)
    if labels.dtype.kind in "cV" or bad is not None:
        example = labels.tolist()[0] if bad is None else bad
        raise LabelError(
            f"Unknown label type: {name} has labels like {example!r}, but classes are "
            "named by whole numbers or strings."
        )


def _objects(labels: NDArray[Any]) -> list[Any]:
    return labels.tolist() if labels.dtype == object else []


def _check_whole_numbers(labels: NDArray[Any], missing: Mask, name: str) -> None:
    infinite = ~missing & np.isinf(labels)
    if infinite.any():
        at = int(infinite.argmax())
        raise LabelError(
            f"Input {name} contains infinity or a value too large for "
            f"{labels.dtype!r}: {name}[{at}] is {labels[at]}."
        )
    bad = ~missing & (labels != np.round(labels))
    if bad.any():
        at = int(bad.argmax())
        raise LabelError(
            f"Unknown label type: continuous. {name}[{at}] is {labels[at]}, but "
            "classes are named by whole numbers or strings: bin a continuous target "
            "first."
        )
