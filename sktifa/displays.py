"""The pictures. Matplotlib is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError

from sktifa.diagnostics import accuracy_by_gain, radial_decay
from sktifa.exceptions import ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["GainBinsDisplay", "RadialDecayDisplay", "SearchDisplay"]


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
    figure_: Figure | SubFigure

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


class RadialDecayDisplay:
    """Error rate, or what a method gains on another, by intensity and clarity.

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
    sktifa.diagnostics.radial_decay : The numbers.

    Examples
    --------
    >>> from sktifa.displays import RadialDecayDisplay
    >>> display = RadialDecayDisplay.from_predictions(
    ...     [0.4, 0.3], [0.0, -0.1], [0, 1], [0, 0], n_bins=2
    ... )
    >>> display.values
    array([[ 0., nan],
           [nan,  1.]])
    """

    ax_: Axes
    figure_: Figure | SubFigure

    def __init__(
        self,
        values: NDArray[np.float64],
        kind: Literal["error", "gain"] = "error",
    ) -> None:
        self.values, self.kind = values, kind

    @classmethod
    def from_predictions(
        cls,
        intensity: ArrayLike,
        clarity: ArrayLike,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        *,
        baseline: ArrayLike | None = None,
        n_bins: int = 10,
    ) -> RadialDecayDisplay:
        """Compare predictions with the labels.

        Parameters
        ----------
        intensity, clarity : array-like of shape (n,)
            Of the annotated information (Eq. 2 and 3).
        y_true, y_pred : array-like of shape (n,)
            Labels and predictions.
        baseline : array-like of shape (n,), default=None
            Another classifier's predictions: the values are then what `y_pred` gains
            on them in accuracy.
        n_bins : int, default=10
            Number of bins on each axis.

        Returns
        -------
        RadialDecayDisplay
        """
        y_true = np.asarray(y_true)

        def accuracy(predicted: ArrayLike) -> NDArray[np.float64]:
            right = np.asarray(predicted) == y_true
            return radial_decay(intensity, clarity, right, n_bins).accuracy

        if baseline is None:
            return cls(1 - accuracy(y_pred))
        return cls(accuracy(y_pred) - accuracy(baseline), "gain")

    def plot(self, ax: Axes | None = None) -> RadialDecayDisplay:
        """Draw the grid.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a figure.

        Returns
        -------
        self
        """
        if ax is None:
            from matplotlib.figure import Figure

            ax = Figure(figsize=(5, 4), layout="constrained").subplots()
        colours: dict[str, Any] = {"cmap": "cividis_r", "vmin": 0}
        if self.kind == "gain":
            most = np.nanmax(np.abs(self.values))
            colours = {"cmap": "PuOr_r", "vmin": -most, "vmax": most}
        image = ax.imshow(
            self.values, origin="lower", extent=(0, 100, 0, 100), **colours
        )
        ax.set(
            xlabel="rank of clarity (%, clearest first)",
            ylabel="rank of intensity (%, strongest first)",
        )
        label = {"error": "error rate", "gain": "gain in accuracy"}[self.kind]
        ax.figure.colorbar(image, ax=ax, label=label)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class SearchDisplay:
    """Validation score against each hyper-parameter of a search.

    A dot is a candidate; the line is the mean of the candidates with a value, or in a
    bin of ten, whatever their other parameters: what mattered has a line that is not
    flat.

    Parameters
    ----------
    scores : ndarray of shape (n_candidates,)
        Mean validation score.
    values : mapping of str to list
        Each hyper-parameter's value in every candidate; None where it has none.
    score_name : str, default="score"
        Name of the score.

    Attributes
    ----------
    axes_, figure_ : ndarray of matplotlib Axes, Figure
        Where it was drawn, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sktifa.displays import SearchDisplay
    >>> model = LogisticRegression(max_iter=500)
    >>> search = GridSearchCV(model, {"C": [1e-3, 1.0]})
    >>> display = SearchDisplay.from_search(search.fit(*load_iris(return_X_y=True)))
    >>> values, means = display.marginal("C")
    >>> values, means.round(2)
    ([0.001, 1.0], array([0.74, 0.97]))
    """

    axes_: NDArray[Any]
    figure_: Figure

    def __init__(
        self,
        scores: NDArray[np.float64],
        values: Mapping[str, list[Any]],
        score_name: str = "score",
    ) -> None:
        self.scores, self.values, self.score_name = scores, values, score_name

    @classmethod
    def from_search(cls, search: Any, metric: str | None = None) -> SearchDisplay:
        """Read a fitted search of scikit-learn's or ours.

        Parameters
        ----------
        search : fitted search
            With ``cv_results_``.
        metric : str, default=None
            With several metrics, the one to show; None is the one of `refit`.

        Returns
        -------
        SearchDisplay
            Of the hyper-parameters that take more than one value.

        Raises
        ------
        NotFittedError
            If the search has no results yet.
        ParameterError
            If it has several metrics and `refit` names none, or `metric` isn't one.
        """
        results = getattr(search, "cv_results_", None)
        if results is None:
            raise NotFittedError(
                f"{type(search).__name__} has no results: fit it first."
            )
        if metric is None:
            several = getattr(search, "multimetric_", False)
            metric = search.refit if several else "score"
        if f"mean_test_{metric}" not in results:
            there = [k[10:] for k in results if k.startswith("mean_test_")]
            raise ParameterError(
                f"metric={metric!r} is none of the search's: name one of {there}."
            )
        names = sorted({name for params in results["params"] for name in params})
        values = {
            name: [params.get(name) for params in results["params"]] for name in names
        }
        values = {n: v for n, v in values.items() if len(set(map(repr, v))) > 1}
        return cls(results[f"mean_test_{metric}"], values, metric)

    def marginal(self, name: str, n_bins: int = 10) -> tuple[list[Any], NDArray]:
        """Return a hyper-parameter's values and the mean score at each.

        Parameters
        ----------
        name : str
            The hyper-parameter.
        n_bins : int, default=10
            A number that takes more values than this is put in as many bins of equal
            counts, each standing at its median.

        Returns
        -------
        values : list
            Sorted, where they can be.
        means : ndarray of float64
            Failed candidates don't count.
        """
        values, known = self.values[name], np.isfinite(self.scores)
        if _are_numbers(values) and len(set(values)) > n_bins:
            order = np.argsort(values, kind="stable")
            bins = np.array_split(order[known[order]], n_bins)
            return (
                [float(np.median([values[i] for i in chosen])) for chosen in bins],
                np.array([self.scores[chosen].mean() for chosen in bins]),
            )
        by_value: dict[str, list[int]] = {}
        for i, value in enumerate(values):
            if known[i]:
                by_value.setdefault(repr(value), []).append(i)
        groups = list(by_value.values())
        if _are_numbers(values):
            groups.sort(key=lambda group: values[group[0]])
        means = np.array([self.scores[group].mean() for group in groups])
        return [values[group[0]] for group in groups], means

    def plot(self, n_columns: int = 3) -> SearchDisplay:
        """Draw a panel for each hyper-parameter.

        Parameters
        ----------
        n_columns : int, default=3
            Panels side by side.

        Returns
        -------
        self
        """
        from matplotlib.figure import Figure

        n_panels = max(len(self.values), 1)
        n_columns = min(n_columns, n_panels)
        n_rows = -(-n_panels // n_columns)
        figure = Figure(figsize=(4 * n_columns, 3 * n_rows), layout="constrained")
        axes = figure.subplots(n_rows, n_columns, sharey=True, squeeze=False)
        for ax, name in zip(axes.flat, self.values, strict=False):
            values, (at, means) = self.values[name], self.marginal(name)
            if not _are_numbers(values):
                # Words and tuples stand in the order of their scores.
                at = [str(at[i]) for i in np.argsort(means)]
                means, values = np.sort(means), [str(value) for value in values]
                place = {value: i for i, value in enumerate(at)}
                kept = [i for i, value in enumerate(values) if value in place]
                ax.plot([place[values[i]] for i in kept], self.scores[kept], ".")
                ax.set_xticks(range(len(at)), at)
                at = list(range(len(at)))
            else:
                ax.plot(values, self.scores, ".", alpha=0.5)
                low, high = min(values), max(values)
                if low > 0 and high > 20 * low:
                    ax.set_xscale("log")
            ax.plot(at, means, marker="o")
            ax.set(xlabel=name)
        for row in axes:
            row[0].set_ylabel(f"validation {self.score_name}")
        for ax in axes.flat[len(self.values) :]:
            ax.set_visible(False)
        self.axes_, self.figure_ = axes, figure
        return self


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(v, Real) and not isinstance(v, bool) for v in values)
