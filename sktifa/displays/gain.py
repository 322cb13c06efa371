"""Accuracy by bin of the information gain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from sktifa.diagnostics import accuracy_by_gain, correctness
from sktifa.displays.style import GREY, axes_or_new, legend_beside, looks
from sktifa.exceptions import ParameterError
from sktifa.graph import as_graph, is_feature_matrix
from sktifa.labels import encode_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["GainBinsDisplay"]


class GainBinsDisplay:
    """Accuracy by bin of the topology information gain, a line for each classifier.

    With a baseline it shows what the others add to that one's accuracy (figures 4 and
    6 of the paper).

    Parameters
    ----------
    accuracies : mapping of str to ndarray of shape (n_bins,)
        Accuracy in each bin, from the smallest gain to the largest.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn, after `plot`.

    See Also
    --------
    sktifa.diagnostics.accuracy_by_gain : The numbers.

    Examples
    --------
    >>> from sktifa.displays import GainBinsDisplay
    >>> gain = [0.1, 0.4, 0.2, 0.3]
    >>> display = GainBinsDisplay.from_predictions(
    ...     gain, [0, 1, 1, 0], {"GCN": [1, 1, 1, 0]}, n_bins=2
    ... )
    >>> display.accuracies["GCN"]
    array([0.5, 1. ])
    """

    ax_: Axes
    figure_: Figure | SubFigure

    def __init__(self, accuracies: Mapping[str, NDArray[np.float64]]) -> None:
        self.accuracies = accuracies

    @classmethod
    def from_predictions(
        cls,
        gain: ArrayLike,
        y_true: ArrayLike,
        predictions: Mapping[str, ArrayLike] | ArrayLike,
        *,
        n_bins: int = 5,
        missing_label: int | float | str | None = -1,
    ) -> GainBinsDisplay:
        """Compare classifiers' predictions with the labels.

        Parameters
        ----------
        gain : array-like of shape (n,)
            Information gain of each node, as in ``TIFAGCLClassifier.gain_``.
        y_true : array-like of shape (n,)
            Labels; nodes without one are left out.
        predictions : mapping of str to array-like of shape (n,), or array-like
            Predicted labels of each classifier by name, or of one without a name.
        n_bins : int, default=5
            Number of bins.
        missing_label : int, float, str or None, default=-1
            Marks nodes without a label.

        Returns
        -------
        GainBinsDisplay

        Raises
        ------
        LabelError
            If text is compared with numbers, or lengths differ.
        ParameterError
            If there is no prediction, or `gain` has another length.
        """
        if not isinstance(predictions, Mapping):
            predictions = {"": predictions}
        if not predictions:
            raise ParameterError("predictions are empty: give those of a classifier.")
        gain, y_true = np.asarray(gain), np.asarray(y_true)
        known = encode_labels(y_true, missing_label)[0] >= 0
        if gain.shape != known.shape:
            raise ParameterError(
                f"gain has shape {gain.shape} for {len(known)} labels: give that of "
                "the same nodes, such as model.gain_[graph.nodes]."
            )
        return cls(
            {
                name: accuracy_by_gain(
                    gain[known], correctness(y_true, predicted)[known], n_bins
                )
                for name, predicted in predictions.items()
            }
        )

    @classmethod
    def from_estimator(
        cls,
        estimator: Mapping[str, Any] | Any,
        X: Any,
        y: ArrayLike,
        *,
        gain: ArrayLike | None = None,
        n_bins: int = 5,
        missing_label: int | float | str | None = -1,
    ) -> GainBinsDisplay:
        """Let fitted classifiers predict, and compare with the labels.

        Parameters
        ----------
        estimator : classifier, or mapping of str to classifier
            Fitted.
        X : Graph or array-like of shape (n, n_features)
            The nodes to predict, best those that training did not see.
        y : array-like of shape (n,)
            Their labels; nodes without one are left out.
        gain : array-like of shape (n,), default=None
            Their information gain. None takes `gain_` of the first classifier that has
            it, whose graph `X` must be.
        n_bins, missing_label
            As in `from_predictions`.

        Returns
        -------
        GainBinsDisplay
        """
        estimators = (
            dict(estimator) if isinstance(estimator, Mapping) else {"": estimator}
        )
        for model in estimators.values():
            check_is_fitted(model)
        if gain is None:
            gain = gain_of(estimators.values(), X)
        predictions = {name: model.predict(X) for name, model in estimators.items()}
        return cls.from_predictions(
            gain, y, predictions, n_bins=n_bins, missing_label=missing_label
        )

    def plot(self, ax: Axes | None = None, *, baseline: str | None = None) -> Any:
        """Draw the lines.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.
        baseline : str, default=None
            Draw differences from this classifier's accuracy, in points.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            If `baseline` is none of the classifiers.
        """
        if baseline is not None and baseline not in self.accuracies:
            raise ParameterError(
                f"baseline={baseline!r} is none of the classifiers: name one of "
                f"{list(self.accuracies)}."
            )
        ax = axes_or_new(ax)
        n_bins = len(next(iter(self.accuracies.values())))
        at = np.arange(1, n_bins + 1)
        for (name, accuracy), (colour, marker) in zip(
            self.accuracies.items(), looks(len(self.accuracies)), strict=True
        ):
            values = accuracy
            if name == baseline:
                ax.axhline(0, color=GREY, ls=":", label=name)
                continue
            if baseline is not None:
                values = 100 * (accuracy - self.accuracies[baseline])
            ax.plot(at, values, color=colour, marker=marker, label=name or None)
        ax.set(
            xlabel="bin of information gain, least first",
            ylabel="accuracy" if baseline is None else f"points above {baseline}",
            xticks=at,
        )
        if set(self.accuracies) != {""}:
            legend_beside(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def gain_of(estimators: Any, X: Any) -> NDArray[np.float64]:
    """Return the gain of the nodes of `X` by the first classifier that knows it."""
    for model in estimators:
        everywhere = getattr(model, "gain_", None)
        if everywhere is None:
            continue
        if is_feature_matrix(X):
            if len(everywhere) == np.shape(X)[0]:
                return np.asarray(everywhere)
            continue
        graph = as_graph(X)
        if len(everywhere) == graph.n_nodes:
            return np.asarray(everywhere)[graph.nodes]
    raise ParameterError(
        "no classifier has the information gain (gain_) of these nodes: give gain=, "
        "such as LabelPropagationTIG().fit(graph[train], y[train]).gain_[graph.nodes]."
    )
