"""Errors, and what contrast adds, by cell of intensity × clarity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sktifa.diagnostics import correctness, radial_decay
from sktifa.displays.information import informed, name_plane
from sktifa.displays.style import OneAxesDisplay
from sktifa.information.tig import clarity, intensity
from sktifa.labels import encode_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["RadialDecayDisplay"]


class RadialDecayDisplay(OneAxesDisplay):
    """Error rate, or what a method gains on another, by intensity and clarity.

    Figures 1 and 5 of the paper, (b) and (c). Much and clear information arrives at the
    lower left.

    Parameters
    ----------
    values : ndarray of shape (n_bins, n_bins)
        Rows by rank of intensity, columns by rank of clarity, the highest first; NaN
        where a cell is empty.
    kind : {"error", "gain"}, default="error"
        What the values are. Gains are coloured around 0.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn, after `plot`.

    See Also
    --------
    InformationPlaneDisplay : Node by node.
    sktifa.diagnostics.radial_decay : The numbers.

    Examples
    --------
    >>> from sktifa.displays import RadialDecayDisplay
    >>> information = [[0.4, 0.0], [0.3, 0.2], [0.1, 0.05]]
    >>> display = RadialDecayDisplay.from_predictions(
    ...     information, ["a", "a", "b"], ["a", "a", "a"], n_bins=2
    ... )
    >>> display.values
    array([[ 0.,  0.],
           [ 1., nan]])
    """

    width, height = 5.5, 4.5

    def __init__(
        self, values: NDArray[np.float64], kind: Literal["error", "gain"] = "error"
    ) -> None:
        self.values, self.kind = values, kind

    @classmethod
    def from_predictions(
        cls,
        information: ArrayLike,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        *,
        baseline: ArrayLike | None = None,
        n_bins: int = 10,
        missing_label: int | float | str | None = -1,
    ) -> RadialDecayDisplay:
        """Compare predictions with the labels.

        Parameters
        ----------
        information : array-like of shape (n, n_classes)
            What reaches each node, from
            :func:`~sktifa.information.tig.annotated_information` (paper: Z*).
        y_true, y_pred : array-like of shape (n,)
            Labels, of which nodes without one are left out, and predicted labels.
        baseline : array-like of shape (n,), default=None
            Another classifier's predictions: the values are then what `y_pred` gains on
            them in accuracy.
        n_bins : int, default=10
            Cells a side.
        missing_label : int, float, str or None, default=-1
            Marks nodes without a label.

        Returns
        -------
        RadialDecayDisplay
        """
        known = encode_labels(y_true, missing_label)[0] >= 0
        information = np.asarray(information)[known]
        correct = correctness(y_true, y_pred)[known].astype(np.float64)
        if baseline is not None:
            correct -= correctness(y_true, baseline)[known]
        mean = radial_decay(
            intensity(information), clarity(information), correct, n_bins
        ).accuracy
        return cls(1 - mean) if baseline is None else cls(mean, "gain")

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        labeled: ArrayLike,
        baseline: Any = None,
        n_bins: int = 10,
        missing_label: int | float | str | None = -1,
    ) -> RadialDecayDisplay:
        """Let fitted classifiers predict the nodes that they did not learn from.

        Parameters
        ----------
        estimator : classifier
            Fitted.
        X : Graph
            The graph or a selection of it.
        y : array-like of shape (len(X),)
            Labels of the (selected) nodes, all that are known.
        labeled : array-like of int or bool
            The positions in `X`, or a mask, of the nodes whose labels training saw.
        baseline : classifier, default=None
            Another one, fitted on the same labels, such as one without contrast.
        n_bins : int, default=10
            Cells a side.
        missing_label : int, float, str or None, default=-1
            Marks nodes without a label.

        Returns
        -------
        RadialDecayDisplay
        """
        graph, y, information, rest = informed(X, y, labeled, missing_label)
        return cls.from_predictions(
            information[rest],
            y[rest],
            np.asarray(estimator.predict(graph))[rest],
            baseline=(
                None if baseline is None else np.asarray(baseline.predict(graph))[rest]
            ),
            n_bins=n_bins,
            missing_label=missing_label,
        )

    def _draw(self, ax: Axes) -> None:
        """Draw the cells; those without nodes stay grey."""
        colours: dict[str, Any] = {"cmap": "Blues", "vmin": 0}
        if self.kind == "gain":
            most = np.nanmax(np.abs(self.values), initial=1e-9)
            colours = {"cmap": "PuOr_r", "vmin": -most, "vmax": most}
        edges = np.linspace(0, 100, len(self.values) + 1)
        ax.set_facecolor("0.85")
        cells = ax.pcolormesh(
            edges, edges, self.values.T, edgecolor="white", lw=0.5, **colours
        )
        label = {"error": "error rate", "gain": "gain in accuracy"}[self.kind]
        ax.figure.colorbar(cells, ax=ax, label=label)
        name_plane(ax)
