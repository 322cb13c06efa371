"""Which nodes a training step sees."""

from sktifa.sampling.neighbors import NeighborSampler
from sktifa.sampling.random_walk import SAINTTIFASampler

__all__ = ["NeighborSampler", "SAINTTIFASampler"]
