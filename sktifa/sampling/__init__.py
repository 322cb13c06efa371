"""Which nodes a training step sees."""

from sktifa.sampling.random_walk import SAINTTIFASampler

__all__ = ["SAINTTIFASampler"]
