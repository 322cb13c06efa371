"""Errors and warnings of sktifa.

Every error is a :class:`SktifaError` and also the builtin that a caller would
expect, so ``except ValueError`` goes on working.
"""


class SktifaError(Exception):
    """Base class of all errors of sktifa."""


class GraphError(SktifaError, ValueError):
    """A graph, its edges or its node features are not well formed."""


class LabelError(SktifaError, ValueError):
    """The labels don't fit the graph, or none of them is a label."""


class MissingPackageError(SktifaError, ModuleNotFoundError):
    """An optional package that is needed here is not installed."""


class NodeIndexError(SktifaError, IndexError):
    """Nodes are selected by what is neither a mask nor positions."""


class NodeNameError(SktifaError, KeyError):
    """A node is looked up by a name that it doesn't have."""

    # KeyError would show the repr of the message.
    __str__ = Exception.__str__


class ParameterError(SktifaError, ValueError):
    """A parameter is outside its range."""


class DatasetError(SktifaError, FileNotFoundError):
    """A data set is neither on disk nor to be had from the network."""


class NotEnoughMemoryError(SktifaError, MemoryError):
    """The work doesn't fit in the memory of the device."""


class StorageError(SktifaError, OSError):
    """A file can't be written, or is not what it should be."""


class TrainingError(SktifaError, RuntimeError):
    """Training ended without a usable model."""


class GraphWarning(UserWarning):
    """A graph was mended on its way in."""


class LabelWarning(UserWarning):
    """Labels were read in a way that may not be meant."""


class PerturbationWarning(UserWarning):
    """A perturbation ended before it changed as many edges as asked."""
