"""Whether a graph's edges tell anything of its labels, judged from the labels known.

Three questions, the cheapest first: do the ends of labelled edges agree, do labels
propagated along the edges find a label that was held out, and do features alone find
it as well? Each answer comes with its standard error, so that few labels end in "can't
tell" and not in a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from sktifa.graph import Graph
from sktifa.information.propagation import label_propagation
from sktifa.information.tig import checked_codes

__all__ = ["Estimate", "GraphEvidence", "graph_helps", "has_features"]

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

# On a scale from 0, chance, to 1, perfect: below this edges tell too little. Graphs
# made to be homophilous lie above .5 (Cora .77, CiteSeer .67), those made not to be
# below .15 (Minesweeper .01, Tolokers .09).
_LEAST = 0.25
# Standard errors that count as certain, and edges or nodes without which nothing is
# held against a graph.
_CERTAIN = 2.0
_FEWEST = 30
# Ranks of propagated labels are settled long before their digits are.
_TOL = 1e-2
# Multiplications a sweep of the propagation may take, all folds together: beyond, fewer
# folds are tested, and a graph too large for one is walked on from a sample of nodes.
_SWEEP = 1e8
_WALKS = 256
# Labels that these walks must meet on average, or they say nothing.
_FEWEST_MET = 20
_RESTART = 0.15
# Labelled nodes that features and walks are tried on.
_MOST_NODES = 1000
_FOLDS = 5
# Times that nodes stand in for labels that can't be held out.
_DRAWS = 5


@dataclass(frozen=True)
class Estimate:
    """A number, its standard error, and how many it was counted on."""

    value: float
    error: float
    n: int

    @property
    def low(self) -> float:
        """Two standard errors below the value."""
        return self.value - _CERTAIN * self.error

    @property
    def high(self) -> float:
        """Two standard errors above the value."""
        return self.value + _CERTAIN * self.error


class GraphEvidence:
    """What the known labels say of a graph; each part is computed when it is asked for.

    Parameters
    ----------
    graph : Graph
        The whole graph is used, whatever is selected.
    codes : ndarray of int, shape (graph.n_nodes,)
        Class of each node of the whole graph; -1 where unlabelled.
    n_classes : int
        Number of classes.
    random_state : int, default=0
        Deals the labelled nodes into folds.
    device : str or torch.device, default="cpu"
        Where labels are propagated.

    Raises
    ------
    LabelError
        If `codes` don't have one entry a node of the whole graph.

    See Also
    --------
    graph_helps : Make one and ask it.
    """

    def __init__(
        self,
        graph: Graph,
        codes: NDArray[np.integer],
        n_classes: int,
        random_state: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        self.codes = checked_codes(codes, graph.n_nodes, n_classes).numpy()
        self.graph, self.n_classes = graph, n_classes
        self.random_state, self.device = random_state, device

    @property
    def chance(self) -> float:
        """Balanced accuracy of a guess."""
        return 1 / self.n_classes

    @cached_property
    def n_labelled_edges(self) -> int:
        """Number of edges with a label at both ends."""
        return len(self._labelled_edges[0])

    @cached_property
    def edge_homophily(self) -> Estimate | None:
        """Share of the labelled edges, by weight, that join nodes of one class."""
        return self._homophily[0]

    @cached_property
    def adjusted_homophily(self) -> Estimate | None:
        """The same on a scale from 0, what chance would do, to 1.

        Chance is an edge between two nodes drawn by their (labelled) degrees.
        """
        return self._homophily[1]

    @cached_property
    def propagation(self) -> Estimate | None:
        """Balanced accuracy of labels propagated to labelled nodes held out.

        A node that none reaches counts as a guess. None where no two classes have two
        labels, or so few nodes of a large graph that walks on it would meet none.
        """
        labelled, nodes = self._testable, self.graph.n_nodes
        if self._affordable:
            most = self._affordable
            return self._cross_fitted(labelled, self._received, most_folds=most)
        if len(labelled) / nodes * _WALKS / _RESTART < _FEWEST_MET:
            return None
        n_folds = max(_FOLDS, len(labelled) // _MOST_NODES)
        return self._cross_fitted(labelled, self._walked, n_folds, most_folds=1)

    @cached_property
    def returned(self) -> Estimate | None:
        """Balanced accuracy of labels propagated to labelled nodes and back again.

        Of the labels that can't be held out, as no other of their class is left. Nodes
        drawn from those that a class reaches first take its labels' place, as many as
        they are, and labels propagated from there either find the labels or do not:
        where a class is reached by chance, so is the way back. None where each label
        can be held out, or the graph is large.
        """
        labelled, codes = np.flatnonzero(self.codes >= 0), self.codes
        alone = labelled
        if self.propagation is not None:
            alone = np.setdiff1d(labelled, self._testable)
        n_draws = min(_DRAWS, self._affordable)
        if not len(alone) or not n_draws or self.n_classes < 2:
            return None
        reached = self._propagated(labelled, codes[labelled])
        first = np.where(reached.any(axis=1), reached.argmax(axis=1), -1)
        first[labelled] = -1
        counts = np.bincount(codes[labelled], minlength=self.n_classes)
        rng = np.random.default_rng(self.random_state)
        right = []
        for _ in range(n_draws):
            drawn = [
                rng.permutation(np.flatnonzero(first == of_class))[:count]
                for of_class, count in enumerate(counts)
            ]
            back = self._propagated(
                np.concatenate(drawn),
                np.repeat(np.arange(self.n_classes), [len(nodes) for nodes in drawn]),
            )
            right.append(_share_right(back[alone], codes[alone]))
        return _balanced(np.tile(codes[alone], n_draws), np.concatenate(right))

    @cached_property
    def skill(self) -> float:
        """What propagated labels prove on a scale from 0, chance, to 1.

        The mean over classes, of `propagation` where labels can be held out and else
        of `returned`.
        """
        tried = 0.0
        if self.propagation is not None:
            tried = len(np.unique(self.codes[self._testable])) / self.n_classes
        proven = tried * self._proven(self.propagation)
        return max(proven + (1 - tried) * self._proven(self.returned), 0.0)

    @cached_property
    def features(self) -> Estimate | None:
        """Balanced accuracy of a LogisticRegression on the features alone.

        None where there are no features, or no two classes have two labels.
        """
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import MaxAbsScaler, StandardScaler

        if not has_features(self.graph):
            return None
        matrix = self.graph.features
        scaler = MaxAbsScaler() if sparse.issparse(matrix) else StandardScaler()
        model = make_pipeline(
            scaler, LogisticRegression(class_weight="balanced", tol=1e-2)
        )

        def scores(train: Integers, test: Integers) -> Floats:
            model.fit(matrix[train], self.codes[train])
            found = np.zeros((len(test), self.n_classes))
            found[:, model.classes_] = model.predict_proba(matrix[test])
            return found

        labelled = self._testable
        if len(labelled) > _MOST_NODES:
            rng = np.random.default_rng(self.random_state)
            labelled = np.sort(rng.choice(labelled, _MOST_NODES, replace=False))
        return self._cross_fitted(labelled, scores)

    @cached_property
    def helps(self) -> bool | None:
        """Whether edges tell of labels; None where the labels are too few to say.

        They do where labelled edges agree, or propagated labels find held-out ones,
        well above chance. They don't where they fail in either and features alone do as
        well.
        """
        edges = self.adjusted_homophily
        if edges is not None and edges.low > _LEAST:
            return True
        disagree = edges is not None and edges.high < _LEAST and edges.n >= _FEWEST
        if self.propagation is None:
            return False if disagree else None
        found = self._above_chance(self.propagation)
        if found.low > _LEAST and not disagree:
            return True
        if not disagree and (found.high >= _LEAST or found.n < _FEWEST):
            return None
        if self.features is None:
            return found.low > 0
        rival = self._above_chance(self.features)
        ahead = found.value - rival.value
        return bool(ahead > _CERTAIN * np.hypot(found.error, rival.error))

    # ---------------------------------------------------------------- the work

    @property
    def _affordable(self) -> int:
        """Propagations that are quick enough, all in all."""
        arcs = self.graph.adjacency.nnz + self.graph.n_nodes
        return int(_SWEEP // (arcs * self.n_classes))

    def _above_chance(self, accuracy: Estimate) -> Estimate:
        room = 1 - self.chance
        return Estimate(
            (accuracy.value - self.chance) / room, accuracy.error / room, accuracy.n
        )

    def _proven(self, accuracy: Estimate | None) -> float:
        """Say how far above chance it is, were one more node found and one more not.

        Few that are right prove little.
        """
        if accuracy is None:
            return 0.0
        found = (accuracy.value * accuracy.n + 1) / (accuracy.n + 2)
        return self._above_chance(replace(accuracy, value=found)).value

    @cached_property
    def _labelled_edges(self) -> tuple[Integers, Integers, Floats]:
        """Classes of both ends and weight of each labelled edge."""
        labelled = np.flatnonzero(self.codes >= 0)
        among = sparse.triu(self.graph.adjacency[labelled][:, labelled]).tocoo()
        row, col = among.coords
        codes = self.codes[labelled]
        return codes[row], codes[col], among.data.astype(np.float64)

    @cached_property
    def _homophily(self) -> tuple[Estimate | None, Estimate | None]:
        one, other, weight = self._labelled_edges
        if not len(weight) or self.n_classes < 2:
            return None, None
        total = weight.sum()
        same = weight[one == other].sum() / total
        degree = np.bincount(one, weight, self.n_classes)
        degree += np.bincount(other, weight, self.n_classes)
        by_chance = ((degree / degree.sum()) ** 2).sum()
        # Edges of unlike weights are worth as many of like ones.
        n_edges = total**2 / (weight**2).sum()
        error = _binomial_error(same, n_edges)
        edge = Estimate(float(same), float(error), len(weight))
        room = 1 - by_chance
        if not room:  # one class alone has labelled edges
            return edge, None
        adjusted = (same - by_chance) / room
        return edge, Estimate(float(adjusted), float(error / room), len(weight))

    @cached_property
    def _testable(self) -> Integers:
        """Labelled nodes whose class keeps a label when theirs is held out."""
        labelled = np.flatnonzero(self.codes >= 0)
        counts = np.bincount(self.codes[labelled], minlength=self.n_classes)
        return labelled[counts[self.codes[labelled]] >= 2]

    def _received(self, train: Integers, test: Integers) -> Floats:
        """Propagate the labels of `train` to `test`."""
        return self._propagated(train, self.codes[train])[test]

    def _propagated(self, nodes: Integers, of_class: NDArray[np.integer]) -> Floats:
        """Propagate from nodes of known class to all (Eq. 1, class means)."""
        sources = np.zeros((self.graph.n_nodes, self.n_classes))
        sources[nodes, of_class] = self._share(of_class)
        return label_propagation(
            self.graph.adjacency,
            sources,
            restart_probability=_RESTART,
            tol=_TOL,
            device=self.device,
        )

    def _walked(self, train: Integers, test: Integers) -> Floats:
        """Estimate the same, up to a factor a node, by walks that start at `test`.

        Eq. 1 is ``Z_i = a d_i sum_t (1 - a)^t sum_j P^t(i, j) Z0_j / d_j``, where P
        steps to a neighbour: a walk that goes on with probability 1 - a collects it.
        """
        adjacency = self.graph.adjacency
        rng = np.random.default_rng(self.random_state)
        begin = adjacency.indptr[:-1].astype(np.int64)
        degree = np.diff(adjacency.indptr)
        sums = None
        if not (adjacency.data == 1).all():
            sums = np.concatenate([[0], np.cumsum(adjacency.data, dtype=np.float64)])
        worth = np.zeros(self.graph.n_nodes)
        weight = degree if sums is None else np.diff(sums[adjacency.indptr])
        worth[train] = self._share(self.codes[train]) / np.maximum(weight[train], 1e-30)
        found = np.zeros((len(test), self.n_classes))
        start = np.repeat(np.arange(len(test)), _WALKS)
        at = test[start]
        while len(at):
            paid = worth[at] > 0
            here = at[paid]
            np.add.at(found, (start[paid], self.codes[here]), worth[here])
            on = (rng.random(len(at)) >= _RESTART) & (degree[at] > 0)
            at, start = at[on], start[on]
            drawn = rng.random(len(at))
            if sums is None:
                arc = begin[at] + (drawn * degree[at]).astype(np.int64)
            else:
                low = sums[begin[at]]
                high = sums[begin[at] + degree[at]]
                arc = np.searchsorted(sums, low + drawn * (high - low), "right") - 1
                arc = np.clip(arc, begin[at], begin[at] + degree[at] - 1)
            at = adjacency.indices[arc].astype(np.int64)
        return found

    def _share(self, of_class: NDArray[np.integer]) -> Floats:
        """Let a class's labels add up to 1: one of many labels is not nearer for it."""
        return 1 / np.bincount(of_class, minlength=self.n_classes)[of_class]

    def _cross_fitted(
        self,
        labelled: Integers,
        scores: Callable[[Integers, Integers], Floats],
        n_folds: int = _FOLDS,
        most_folds: int = _FOLDS,
    ) -> Estimate | None:
        """Average over classes how often the best score of a held-out node is right.

        Nodes are dealt class by class into folds, of which `most_folds` have a turn.
        """
        codes = self.codes[labelled]
        if len(np.unique(codes)) < 2:
            return None
        rng = np.random.default_rng(self.random_state)
        shuffled = rng.permutation(len(labelled))
        dealt = shuffled[np.argsort(codes[shuffled], kind="stable")]
        n_folds = min(n_folds, int(np.bincount(codes).max()))
        right = np.full(len(labelled), np.nan)
        for fold in range(min(n_folds, most_folds)):
            test = dealt[fold::n_folds]
            train = np.setdiff1d(dealt, test)
            found = scores(labelled[train], labelled[test])
            right[test] = _share_right(found, codes[test])
        tried = ~np.isnan(right)
        return _balanced(codes[tried], right[tried])


def graph_helps(
    graph: Graph,
    codes: NDArray[np.integer],
    n_classes: int,
    *,
    random_state: int = 0,
) -> GraphEvidence:
    """Gather what the known labels say of a graph, no more than a verdict needs.

    Parameters
    ----------
    graph : Graph
        The whole graph is used, whatever is selected.
    codes : ndarray of int, shape (graph.n_nodes,)
        Class of each node of the whole graph; -1 where unlabelled.
    n_classes : int
        Number of classes.
    random_state : int, default=0
        Deals the labelled nodes into folds.

    Returns
    -------
    GraphEvidence
        Its `helps` is True, False, or None where labels are too few to say.

    Raises
    ------
    LabelError
        If `codes` don't have one entry a node of the whole graph.

    Examples
    --------
    Labels that follow the edges, and labels that don't:

    >>> import numpy as np
    >>> from sktifa.datasets import make_block_graph
    >>> from sktifa.information.evidence import graph_helps
    >>> made = make_block_graph(500, 3, random_state=0)
    >>> graph_helps(made.graph, made.target, 3).helps
    True
    >>> shuffled = np.random.default_rng(0).permutation(made.target)
    >>> graph_helps(made.graph, shuffled, 3).helps
    False
    """
    return GraphEvidence(graph, codes, n_classes, random_state)


def has_features(graph: Graph) -> bool:
    """Say whether nodes have features that could be alike.

    A graph made without features gives every node one of its own.
    """
    features = graph.features
    if not sparse.issparse(features):
        return True
    return bool((np.bincount(features.indices, minlength=1) > 1).any())


def _binomial_error(share: Floats | float, n: NDArray[Any] | float) -> Floats:
    """Estimate the error of a share of `n`; all of a few is not certain."""
    drawn = (share * n + 1) / (n + 2)
    return np.sqrt(drawn * (1 - drawn) / n)


def _share_right(scores: Floats, codes: NDArray[np.integer]) -> Floats:
    """Tell for each row how often one of its best scores, drawn, is its class's."""
    best = scores == scores.max(axis=1, keepdims=True)
    own = np.take_along_axis(best, codes[:, None], axis=1)[:, 0]
    return own / best.sum(axis=1)


def _balanced(codes: NDArray[np.integer], right: Floats) -> Estimate:
    """Average over the classes that there are how often nodes are right."""
    n, hits = np.bincount(codes), np.bincount(codes, right)
    n, hits = n[n > 0], hits[n > 0]
    errors = _binomial_error(hits / n, n)
    return Estimate(
        float((hits / n).mean()), float(np.sqrt((errors**2).sum()) / len(n)), len(codes)
    )
