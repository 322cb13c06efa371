"""The pictures. Matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sktifa.diagnostics import accuracy_by_gain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["GainBinsDisplay"]


class GainBinsDisplay:
    """Accuracy by bin of the topology information gain, a line for each classifier.

    Parameters
    ----------
    accuracies : mapping of str to ndarray of shape (n_bins,)
        Accuracy in each bin, from the smallest gain to the largest.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn, after `plot`.

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
    figure_: Figure

    def __init__(self, accuracies: Mapping[str, NDArray[np.float64]]) -> None:
        self.accuracies = accuracies

    @classmethod
    def from_predictions(
        cls,
        gain: ArrayLike,
        y_true: ArrayLike,
        predictions: Mapping[str, ArrayLike],
        *,
        n_bins: int = 5,
    ) -> GainBinsDisplay:
        """Compare classifiers' predictions with the labels.

        Parameters
        ----------
        gain : array-like of shape (n,)
            Information gain of each node, as in ``TIFAGCLClassifier.gain_``.
        y_true : array-like of shape (n,)
            Labels.
        predictions : mapping of str to array-like of shape (n,)
            Each classifier's predicted labels.
        n_bins : int, default=5
            Number of bins.

        Returns
        -------
        GainBinsDisplay
        """
        y_true = np.asarray(y_true)
        return cls(
            {
                name: accuracy_by_gain(gain, np.asarray(predicted) == y_true, n_bins)
                for name, predicted in predictions.items()
            }
        )

    def plot(self, ax: Axes | None = None) -> GainBinsDisplay:
        """Draw the lines.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        self
        """
        if ax is None:
            # Not through pyplot, whose figures stay open and want a screen.
            from matplotlib.figure import Figure

            ax = Figure(figsize=(6, 4), layout="constrained").subplots()
        for name, accuracy in self.accuracies.items():
            ax.plot(np.arange(1, len(accuracy) + 1), accuracy, marker="o", label=name)
        n_bins = len(next(iter(self.accuracies.values())))
        ax.set(
            xlabel="bin of information gain (least first)",
            ylabel="accuracy",
            xticks=np.arange(1, n_bins + 1),
        )
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self
