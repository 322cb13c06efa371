"""The course of a training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from sktifa.displays.style import BLUE, GREEN, GREY, ORANGE, legend_beside, new_axes
from sktifa.exceptions import ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["TrainingCurveDisplay"]


class TrainingCurveDisplay:
    """Loss and validation by epoch, and the epoch whose model was kept.

    Parameters
    ----------
    loss : sequence of float
        Training loss of each epoch.
    validation_loss, validation_score : sequence of float, default=None
        Validation cross-entropy and accuracy, before the first epoch and after each.
    best_iter : int, default=None
        Epochs after which the model that is kept was found.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where losses were drawn, after `plot`.
    axes_ : ndarray of Axes
        The panels: losses, and accuracy where there is one.

    Examples
    --------
    >>> from sktifa import GNNClassifier, make_block_graph
    >>> from sktifa.displays import TrainingCurveDisplay
    >>> made = make_block_graph(100, 2, random_state=0)
    >>> model = GNNClassifier(max_iter=5, device="cpu").fit(made.graph, made.target)
    >>> len(TrainingCurveDisplay.from_estimator(model).loss)
    5
    """

    ax_: Axes
    axes_: NDArray[Any]
    figure_: Figure | SubFigure

    def __init__(
        self,
        loss: Sequence[float],
        validation_loss: Sequence[float] | None = None,
        validation_score: Sequence[float] | None = None,
        best_iter: int | None = None,
    ) -> None:
        self.loss = loss
        self.validation_loss = validation_loss
        self.validation_score = validation_score
        self.best_iter = best_iter

    @classmethod
    def from_estimator(cls, estimator: Any) -> TrainingCurveDisplay:
        """Read the course of a fitted classifier's training.

        Parameters
        ----------
        estimator : GNNClassifier or TIFAGCLClassifier
            Fitted. Anything with `loss_curve_` will do, such as scikit-learn's
            MLPClassifier.

        Returns
        -------
        TrainingCurveDisplay

        Raises
        ------
        NotFittedError
            If it is not fitted.
        ParameterError
            If it does not keep its losses.
        """
        check_is_fitted(estimator)
        loss = getattr(estimator, "loss_curve_", None)
        if loss is None:
            raise ParameterError(
                f"{type(estimator).__name__} has no loss_curve_: give a classifier "
                "that keeps the losses of its epochs."
            )
        return cls(
            loss,
            getattr(estimator, "validation_losses_", None),
            getattr(estimator, "validation_scores_", None),
            getattr(estimator, "best_iter_", None),
        )

    def plot(self, ax: Axes | None = None) -> TrainingCurveDisplay:
        """Draw the losses, and below them the accuracy where there is one.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw the losses, alone. None makes a figure.

        Returns
        -------
        self
        """
        scored = self.validation_score is not None and ax is None
        if ax is None:
            axes = new_axes(1 + scored, height=4.0 - scored)[:, 0]
        else:
            axes = np.array([ax])
        epochs = np.arange(1, len(self.loss) + 1)
        axes[0].plot(epochs, self.loss, color=BLUE, label="training")
        if self.validation_loss is not None:
            axes[0].plot(self.validation_loss, "--", color=ORANGE, label="validation")
        axes[0].set(ylabel="loss")
        if scored:
            axes[1].plot(self.validation_score, color=GREEN, label="validation")
            axes[1].set(ylabel="accuracy")
        for panel in axes:
            if self.best_iter is not None:
                panel.axvline(self.best_iter, color=GREY, ls=":", label="model kept")
            legend_beside(panel)
        axes[-1].set(xlabel="epoch")
        self.axes_, self.ax_, self.figure_ = axes, axes[0], axes[0].figure
        return self
