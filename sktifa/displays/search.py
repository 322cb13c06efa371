"""What mattered in a search."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from sktifa.displays.style import BLUE, ORANGE, new_axes
from sktifa.exceptions import ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["SearchDisplay"]


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
    ax_, figure_ : matplotlib Axes and Figure
        Where the first hyper-parameter was drawn, after `plot`.
    axes_ : ndarray of Axes
        The panels.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sktifa.displays import SearchDisplay
    >>> model = LogisticRegression(max_iter=500)
    >>> search = GridSearchCV(model, {"C": [1e-3, 1.0]})
    >>> display = SearchDisplay.from_estimator(search.fit(*load_iris(return_X_y=True)))
    >>> values, means = display.marginal("C")
    >>> values, means.round(2)
    ([0.001, 1.0], array([0.74, 0.97]))
    """

    ax_: Axes
    axes_: NDArray[Any]
    figure_: Figure | SubFigure

    def __init__(
        self,
        scores: NDArray[np.float64],
        values: Mapping[str, list[Any]],
        score_name: str = "score",
    ) -> None:
        self.scores, self.values, self.score_name = scores, values, score_name

    @classmethod
    def from_estimator(cls, search: Any, metric: str | None = None) -> SearchDisplay:
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

    def plot(self, ax: Axes | None = None, *, n_columns: int = 3) -> SearchDisplay:
        """Draw a panel for each hyper-parameter.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw the hyper-parameter that mattered most, whose means lie
            furthest apart, alone. None makes a figure of all.
        n_columns : int, default=3
            Panels side by side.

        Returns
        -------
        self
        """
        names = list(self.values)
        if ax is not None:
            names = sorted(names, key=lambda name: -_spread(self.marginal(name)[1]))[:1]
            axes = np.array([[ax]])
        else:
            n_columns = max(1, min(n_columns, len(names)))
            n_rows = max(1, -(-len(names) // n_columns))
            axes = new_axes(n_rows, n_columns, width=4.0, height=3.0, share_y=True)
        for panel, name in zip(axes.flat, names, strict=False):
            self._draw(panel, name)
        for row in axes:
            row[0].set_ylabel(f"validation {self.score_name}")
        for panel in axes.flat[max(1, len(names)) :]:
            panel.set_visible(False)
        self.axes_, self.ax_, self.figure_ = axes, axes[0, 0], axes[0, 0].figure
        return self

    def _draw(self, ax: Axes, name: str) -> None:
        values, (at, means) = self.values[name], self.marginal(name)
        if not _are_numbers(values):
            # Words and tuples stand in the order of their scores.
            at = [str(at[i]) for i in np.argsort(means)]
            means, values = np.sort(means), [str(value) for value in values]
            place = {value: i for i, value in enumerate(at)}
            kept = [i for i, value in enumerate(values) if value in place]
            dots = [place[values[i]] for i in kept]
            ax.plot(dots, self.scores[kept], ".", color=BLUE, alpha=0.5)
            ax.set_xticks(range(len(at)), at)
            at = list(range(len(at)))
        else:
            ax.plot(values, self.scores, ".", color=BLUE, alpha=0.5)
            low, high = min(values), max(values)
            if low > 0 and high > 20 * low:
                ax.set_xscale("log")
        ax.plot(at, means, color=ORANGE, marker="o")
        ax.set(xlabel=name)


def _spread(means: NDArray[np.float64]) -> float:
    return float(np.ptp(means)) if len(means) else 0.0


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(v, Real) and not isinstance(v, bool) for v in values)
