"""What `classify` has found out: predictions, how sure they are, how often right."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from sktifa.calibration import at_temperature, fit_temperature
from sktifa.cli.data import LabelledGraph

__all__ = ["Answers", "confidence_interval"]


class Answers:
    """Predictions for every node, and what labels held back say of them.

    `model` is fitted on all labels. Of each labelled node, models that didn't see its
    label said `unseen`, (n_labelled, n_classes), and the labels that they saw sent it
    `unseen_gain`; both are NaN for a class's only node.
    """

    def __init__(
        self,
        data: LabelledGraph,
        model: Any,
        unseen: NDArray[np.float64],
        unseen_gain: NDArray[np.float64],
    ) -> None:
        self.data, self.model = data, model
        tested = ~np.isnan(unseen[:, 0])
        # The nodes whose labels were held back.
        self.checked = data.labelled[tested]
        # Calibrates probabilities; 1 where no label could be held back.
        self.temperature = 1.0
        if tested.any():
            self.temperature = fit_temperature(unseen[tested], self.checked_codes)
        self.checked_probabilities = at_temperature(unseen[tested], self.temperature)
        self.probabilities = at_temperature(
            model.predict_proba(data.graph), self.temperature
        )
        self.gain = np.asarray(model.gain_, dtype=np.float64)
        self.checked_gain = unseen_gain[tested]

    @property
    def checked_codes(self) -> NDArray[np.int64]:
        """The true classes of the nodes checked."""
        return self.data.codes[self.checked]

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each node checked was predicted right."""
        return self.checked_probabilities.argmax(axis=1) == self.checked_codes

    @property
    def codes(self) -> NDArray[np.int64]:
        """The predicted class of each node."""
        return self.probabilities.argmax(axis=1)

    @property
    def confidence(self) -> NDArray[np.float64]:
        """The calibrated probability of each prediction."""
        return self.probabilities.max(axis=1)

    def columns(self) -> dict[str, list[Any]]:
        """Return the table of predictions."""
        data = self.data
        return {
            "node": data.names.tolist(),
            "label": data.labels.tolist(),
            "prediction": data.classes[self.codes].tolist(),
            "confidence": _short(self.confidence),
            "gain": _short(self.gain),
            **{
                f"probability_{name}": _short(self.probabilities[:, code])
                for code, name in enumerate(data.classes)
            },
        }

    def summary(self) -> list[str]:
        """Say in a few lines how good the predictions are."""
        data = self.data
        unlabelled = data.graph.n_nodes - len(data.labelled)
        lines = [
            f"{len(data.classes)} classes; {len(data.labelled):,} nodes with a label, "
            f"{unlabelled:,} without"
        ]
        if len(self.checked):
            low, high = confidence_interval(self.correct.sum(), len(self.checked))
            commonest = np.bincount(self.checked_codes).max() / len(self.checked)
            lines += [
                f"of {len(self.checked):,} labels held back, {self.correct.mean():.1%} "
                f"were predicted right (95 % interval {low:.1%} to {high:.1%}); always "
                f"saying the commonest class gets {commonest:.1%}",
                f"mean confidence {self.confidence.mean():.1%}, calibrated on these "
                f"labels (temperature {self.temperature:.2f})",
            ]
        return lines


def confidence_interval(right: int, n: int) -> tuple[float, float]:
    """Return Wilson's interval of 95 % for a share, of how many are right."""
    low, high = binomtest(right, n).proportion_ci(method="wilson")
    return float(low), float(high)


def _short(values: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.6g}") for value in values.tolist()]
