"""Splits of a graph's nodes that know unlabelled nodes.

scikit-learn's splitters take the label −1 for one more class. These keep unlabelled
nodes in every training fold, where they carry edges and features, and out of every
test fold, where they could only be scored wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import BaseCrossValidator, PredefinedSplit, StratifiedKFold
from sklearn.utils import check_random_state, indexable

from sktifa.checks import check_count
from sktifa.exceptions import LabelError, ParameterError
from sktifa.graph import as_graph, is_feature_matrix
from sktifa.labels import encode_labels

__all__ = ["LabeledNodeKFold", "LabeledNodeShuffleSplit", "predefined_validation_split"]

Indices = NDArray[np.int64]


class LabeledNodeKFold(BaseCrossValidator):
    """Stratified K-fold over the labelled nodes.

    Each labelled node is in one test fold, and each class is spread evenly over the
    folds. Unlabelled nodes are in every training fold and in no test fold.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds, at least 2.
    shuffle : bool, default=False
        Whether to shuffle each class before it is dealt out.
    missing_label : object, default=-1
        What marks an unlabelled node in `y`; None and NaN for object labels.
    random_state : int, RandomState instance or None, default=None
        Order of the nodes when `shuffle` is True. An int gives the same folds at
        each call of `split`.

    See Also
    --------
    LabeledNodeShuffleSplit : Random splits with a fixed number of nodes a class.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.model_selection import LabeledNodeKFold
    >>> y = np.array([0, 1, 0, 1, -1])
    >>> for train, test in LabeledNodeKFold(n_splits=2).split(np.zeros((5, 1)), y):
    ...     print(train, test)
    [2 3 4] [0 1]
    [0 1 4] [2 3]
    """

    def __init__(
        self,
        n_splits: int = 5,
        *,
        shuffle: bool = False,
        missing_label: Any = -1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.missing_label = missing_label
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds; all arguments are ignored."""
        return self.n_splits

    def split(
        self, X: Any, y: ArrayLike, groups: Any = None
    ) -> Iterator[tuple[Indices, Indices]]:
        """Yield the positions of training and test nodes.

        Parameters
        ----------
        X : Graph or array-like of shape (n_nodes, n_features)
            The nodes to split; only their number counts.
        y : array-like of shape (n_nodes,)
            Labels, `missing_label` where a node has none.
        groups : object, default=None
            Ignored.

        Yields
        ------
        train, test : ndarray of int64
            Sorted positions in `X`.

        Raises
        ------
        LabelError
            If a class has fewer labelled nodes than there are folds.
        ParameterError
            If `n_splits` is not an integer of at least 2.
        """
        check_count(self.n_splits, "n_splits", low=2)
        if not isinstance(self.shuffle, (bool, np.bool_)):
            raise ParameterError(f"shuffle is {self.shuffle!r}: use True or False")
        codes, classes = _encode(X, y, self.missing_label)
        _check_class_sizes(
            codes,
            classes,
            self.n_splits,
            f"{self.n_splits} folds need one each: lower n_splits",
        )
        labelled = np.flatnonzero(codes >= 0)
        folds = StratifiedKFold(
            self.n_splits,
            shuffle=self.shuffle,
            random_state=self.random_state if self.shuffle else None,
        )
        for _, chosen in folds.split(labelled, codes[labelled]):
            in_test = np.zeros(len(codes), dtype=bool)
            in_test[labelled[chosen]] = True
            yield np.flatnonzero(~in_test), np.flatnonzero(in_test)


class LabeledNodeShuffleSplit(BaseCrossValidator):
    """Random splits with a fixed number of training and validation nodes a class.

    This is the paper's protocol (Appendix C): of each class `train_per_class` nodes
    are drawn for training and `val_per_class` for validation; all other labelled
    nodes are the test set. Unlabelled nodes are in every training set.

    `split` yields pairs, for scikit-learn. What the second of the pair is, says
    `score_on`: the test nodes, to report a result, or the validation nodes, to choose
    hyper-parameters without a look at the test. The third set is in neither.
    `split_with_validation` yields all three.

    Parameters
    ----------
    n_splits : int, default=10
        Number of splits.
    train_per_class : int, default=20
        Training nodes of each class, at least 1.
    val_per_class : int, default=30
        Validation nodes of each class; 0 for no validation set.
    score_on : {"test", "validation"}, default="test"
        The nodes that `split` yields beside the training nodes.
    missing_label : object, default=-1
        What marks an unlabelled node in `y`; None and NaN for object labels.
    random_state : int, RandomState instance or None, default=None
        The draw. An int gives the same splits at each call, whatever `score_on`.

    See Also
    --------
    LabeledNodeKFold : Each labelled node is tested once.
    predefined_validation_split : One fixed validation set, for a search.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.model_selection import LabeledNodeShuffleSplit
    >>> y = np.array([0, 0, 0, 0, 1, 1, 1, -1])
    >>> cv = LabeledNodeShuffleSplit(
    ...     1, train_per_class=1, val_per_class=1, random_state=0
    ... )
    >>> for train, val, test in cv.split_with_validation(np.zeros((8, 1)), y):
    ...     print(y[train], y[val], y[test])
    [ 0  1 -1] [0 1] [0 0 1]

    Choose hyper-parameters on the validation nodes of all splits, then report the
    winner on the test nodes of the same splits::

        protocol = dict(n_splits=20, random_state=0)
        search = GridSearchCV(
            model, grid, cv=LabeledNodeShuffleSplit(score_on="validation", **protocol)
        ).fit(graph, y)
        cross_val_score(
            search.best_estimator_, graph, y, cv=LabeledNodeShuffleSplit(**protocol)
        )
    """

    def __init__(
        self,
        n_splits: int = 10,
        *,
        train_per_class: int = 20,
        val_per_class: int = 30,
        score_on: Literal["test", "validation"] = "test",
        missing_label: Any = -1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_splits = n_splits
        self.train_per_class = train_per_class
        self.val_per_class = val_per_class
        self.score_on = score_on
        self.missing_label = missing_label
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of splits; all arguments are ignored."""
        return self.n_splits

    def split(
        self, X: Any, y: ArrayLike, groups: Any = None
    ) -> Iterator[tuple[Indices, Indices]]:
        """Yield the positions of training nodes and of those to score.

        Parameters
        ----------
        X : Graph or array-like of shape (n_nodes, n_features)
            The nodes to split; only their number counts.
        y : array-like of shape (n_nodes,)
            Labels, `missing_label` where a node has none.
        groups : object, default=None
            Ignored.

        Yields
        ------
        train, scored : ndarray of int64
            Sorted positions in `X`.

        Raises
        ------
        LabelError
            If a class is too small to leave a test node.
        ParameterError
            If a count or `score_on` is outside its range.
        """
        if self.score_on not in ("test", "validation"):
            raise ParameterError(
                f"score_on is {self.score_on!r}: use 'test' or 'validation'"
            )
        if self.score_on == "validation":
            check_count(self.val_per_class, "val_per_class", low=1)
        for train, val, test in self.split_with_validation(X, y):
            yield train, test if self.score_on == "test" else val

    def split_with_validation(
        self, X: Any, y: ArrayLike
    ) -> Iterator[tuple[Indices, Indices, Indices]]:
        """Yield the positions of training, validation and test nodes.

        Parameters
        ----------
        X : Graph or array-like of shape (n_nodes, n_features)
            The nodes to split; only their number counts.
        y : array-like of shape (n_nodes,)
            Labels, `missing_label` where a node has none.

        Yields
        ------
        train, val, test : ndarray of int64
            Sorted positions in `X`; unlabelled nodes are in `train`.

        Raises
        ------
        LabelError
            If a class is too small to leave a test node.
        ParameterError
            If a count is outside its range.
        """
        check_count(self.n_splits, "n_splits", low=1)
        check_count(self.train_per_class, "train_per_class", low=1)
        check_count(self.val_per_class, "val_per_class")
        codes, classes = _encode(X, y, self.missing_label)
        drawn = self.train_per_class + self.val_per_class
        _check_class_sizes(
            codes,
            classes,
            drawn + 1,
            f"{self.train_per_class} for training, {self.val_per_class} for "
            f"validation and one for the test make {drawn + 1}: lower "
            "train_per_class or val_per_class",
        )
        rng = check_random_state(self.random_state)
        labelled = np.flatnonzero(codes >= 0)
        sizes = np.bincount(codes[labelled])
        rank = np.arange(len(labelled)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        for _ in range(self.n_splits):
            shuffled = rng.permutation(labelled)
            by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
            # 0: train, also the unlabelled; 1: validation; 2: test
            part = np.zeros(len(codes), dtype=np.int8)
            part[by_class] = np.where(
                rank < self.train_per_class, 0, np.where(rank < drawn, 1, 2)
            )
            train, val, test = (np.flatnonzero(part == k) for k in range(3))
            yield train, val, test


def predefined_validation_split(
    train: ArrayLike, val: ArrayLike
) -> tuple[Indices, PredefinedSplit]:
    """Make a search score each candidate on one fixed validation set.

    A `PredefinedSplit` trains on all nodes that it doesn't test on, so test nodes
    must be left out beforehand. A selection of the graph does that, and the model
    still sees the whole graph's edges and features.

    Parameters
    ----------
    train, val : array-like of int (positions) or of bool (a mask over all nodes)
        The training and the validation nodes.

    Returns
    -------
    nodes : ndarray of int64
        Positions of the training and validation nodes, for ``graph[nodes]`` and
        ``y[nodes]``.
    cv : sklearn.model_selection.PredefinedSplit
        One split of `nodes`.

    Raises
    ------
    ParameterError
        If a set is empty or no set of nodes, or the two overlap.

    Examples
    --------
    >>> from sktifa.model_selection import predefined_validation_split
    >>> nodes, cv = predefined_validation_split([4, 0], [2, 3])
    >>> nodes
    array([4, 0, 2, 3])
    >>> for train, val in cv.split():
    ...     print(nodes[train], nodes[val])
    [4 0] [2 3]

    The paper's protocol, in which the same validation nodes stop the training and
    choose the hyper-parameters, is then::

        nodes, cv = predefined_validation_split(train, val)
        search = RandomizedSearchCV(model, paper_grid(), n_iter=50, cv=cv, refit=False)
        search.fit(graph[nodes], y[nodes], X_val=graph[val], y_val=y[val])

    No label outside of `train` and `val` is looked at. The winner, fitted on the
    training nodes alone, is
    ``model.set_params(**search.best_params_).fit(graph[train], y[train],
    X_val=graph[val], y_val=y[val])``.
    """
    parts = [_positions("train", train), _positions("val", val)]
    masks = [np.asarray(part) for part in (train, val)]
    if all(mask.dtype == bool for mask in masks) and len(masks[0]) != len(masks[1]):
        raise ParameterError(
            f"train and val are masks of unequal length, {len(masks[0])} and "
            f"{len(masks[1])}: give both an entry for every node"
        )
    both = np.intersect1d(parts[0], parts[1])
    if len(both):
        raise ParameterError(
            f"{len(both)} nodes are in both train and val, the first is {both[0]}: "
            "take them out of one"
        )
    fold = np.repeat([-1, 0], [len(part) for part in parts])
    return np.concatenate(parts), PredefinedSplit(fold)


def _encode(X: Any, y: ArrayLike, missing_label: Any) -> tuple[Indices, NDArray[Any]]:
    if X is not None and not is_feature_matrix(X):
        return encode_labels(y, missing_label, of=as_graph(X))
    indexable(X, y)
    return encode_labels(y, missing_label)


def _positions(name: str, part: ArrayLike) -> Indices:
    part = np.asarray(part)
    if part.ndim != 1 or (part.size and part.dtype.kind not in "biu"):
        raise ParameterError(
            f"{name} must be whole numbers or a mask in one dimension, got shape "
            f"{part.shape} and dtype {part.dtype}"
        )
    if part.dtype == bool:
        part = np.flatnonzero(part)
    if not len(part):
        raise ParameterError(f"{name} is empty: give at least one node")
    return part.astype(np.int64)


def _check_class_sizes(
    codes: Indices, classes: NDArray, needed: int, mend: str
) -> None:
    """Raise for the smallest class if it has fewer than `needed` nodes."""
    sizes = np.bincount(codes[codes >= 0], minlength=len(classes))
    smallest = int(sizes.argmin())
    if sizes[smallest] < needed:
        raise LabelError(
            f"class {classes.tolist()[smallest]!r} has {sizes[smallest]} labelled "
            f"nodes, but {mend}, or mark the class unlabelled"
        )
