"""The pictures, made and drawn like scikit-learn's displays."""

from sktifa.displays.decay import RadialDecayDisplay
from sktifa.displays.embedding import EmbeddingDisplay
from sktifa.displays.gain import GainBinsDisplay
from sktifa.displays.map import GainMapDisplay
from sktifa.displays.pairs import PairQualityDisplay
from sktifa.displays.plane import InformationPlaneDisplay
from sktifa.displays.search import SearchDisplay
from sktifa.displays.training import TrainingCurveDisplay

__all__ = [
    "EmbeddingDisplay",
    "GainBinsDisplay",
    "GainMapDisplay",
    "InformationPlaneDisplay",
    "PairQualityDisplay",
    "RadialDecayDisplay",
    "SearchDisplay",
    "TrainingCurveDisplay",
]
