"""Models in files that hold arrays and JSON, and run nothing when they are opened."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import sktifa
from sktifa.classifiers import GNNClassifier, TIFAGCLClassifier
from sktifa.exceptions import ParameterError, StorageError
from sktifa.tensors.scaling import Scaling
from sktifa.training.encoders import EncoderSpec

__all__ = ["load", "save"]

# Raised whenever a file of the version before can't be read as it is.
_FORMAT = 1
_MODELS = {model.__name__: model for model in (GNNClassifier, TIFAGCLClassifier)}
# Prediction needs none of these, which hold others' code or run in a fit alone.
_LEFT_OUT = ("memory", "sampler", "extra_terms", "random_state")
_NUMBERS = ("n_features_in_", "n_iter_", "best_iter_", "_n_nodes")
_CURVES = ("loss_curve_", "validation_scores_", "validation_losses_")
_ARRAYS = ("classes_", "gain_", "loss_weights_", "_seen_nodes")


def save(model: GNNClassifier, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file.

    The file is an npz archive of arrays, with what is not an array as JSON. A full disk
    leaves what was there. Where `memory`, `sampler`, `extra_terms` or `random_state`
    are objects they are left out: prediction needs none.

    Parameters
    ----------
    model : GNNClassifier or TIFAGCLClassifier
        A model fitted on a graph, with an encoder of ours.
    path : path
        The file.

    Raises
    ------
    ParameterError
        If the model holds what a file without code can't.
    StorageError
        If the file can't be written.

    Examples
    --------
    >>> import sktifa
    >>> data = sktifa.make_block_graph(60, 3, random_state=0)
    >>> model = sktifa.GNNClassifier(max_iter=5, random_state=0, device="cpu")
    >>> sktifa.save(model.fit(data.graph, data.target), "model.npz")  # doctest: +SKIP
    >>> sktifa.load("model.npz").predict(data.graph)  # doctest: +SKIP
    """
    kind, state = type(model).__name__, model.__getstate__()
    if _MODELS.get(kind) is not type(model):
        raise ParameterError(f"a {kind} can't be saved: give one of {list(_MODELS)}.")
    if "_network_state" not in state:
        raise ParameterError("the model is not fitted: call fit before save.")
    if not isinstance(model.encoder, str):
        raise ParameterError(
            "the encoder is your own code, which the file doesn't hold: keep the "
            "model with joblib.dump, and open it only where you trust the file."
        )
    if model._row_graph is not None:
        raise ParameterError(
            "a model fitted on an array keeps its rows, which the file doesn't hold: "
            "use joblib.dump, or fit on Graph.from_features(X)."
        )
    if state["classes_"].dtype.hasobject:
        raise ParameterError("classes of mixed types can't be saved: use joblib.dump.")
    parameters = {
        name: value
        for name, value in model.get_params(deep=False).items()
        if name not in _LEFT_OUT or isinstance(value, (str, int, type(None)))
    }
    weights = parameters.get("class_weight")
    if isinstance(weights, dict):  # JSON's keys are strings
        parameters["class_weight"] = [[k, v] for k, v in weights.items()]
    header = {
        "format": _FORMAT,
        "sktifa": sktifa.__version__,
        "model": kind,
        "parameters": parameters,
        "spec": asdict(state["spec_"]),
        "norm": state["scaling_"].norm,
        "attributes": {name: state[name] for name in (*_NUMBERS, *_CURVES)},
    }
    arrays = {name: state[name] for name in _ARRAYS if state.get(name) is not None}
    if "feature_names_in_" in state:
        arrays["feature_names_in_"] = state["feature_names_in_"].astype(str)
    for name in ("mean", "scale"):
        if (values := getattr(state["scaling_"], name)) is not None:
            arrays[f"scaling/{name}"] = values
    arrays |= {f"network/{k}": v for k, v in state["_network_state"].items()}
    text = json.dumps(header, default=_plain)
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            np.savez(file, header=np.array(text), **arrays)
        os.replace(part, path)
    except OSError as error:
        raise StorageError(
            f"the model can't be written to {str(path)!r}: {error.strerror or error}. "
            "Make room, or name a file elsewhere."
        ) from error
    finally:
        part.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> Any:
    """Open a model that :func:`save` has written. Nothing in the file is run.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    GNNClassifier or TIFAGCLClassifier
        The fitted model, on the CPU.

    Raises
    ------
    StorageError
        If it is no such file, or one of a format that this version doesn't read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(str(arrays.pop("header")[()]))
        made_by, format_ = header["sktifa"], header["format"]
    except FileNotFoundError as error:
        raise StorageError(f"there is no file {str(path)!r}.") from error
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError) as error:
        raise _no_model(path) from error
    except zipfile.BadZipFile as error:
        raise _no_model(path) from error
    if format_ != _FORMAT:
        raise StorageError(
            f"{str(path)!r} was written by sktifa {made_by} in format {format_}, but "
            f"sktifa {sktifa.__version__} reads format {_FORMAT}: open it with the "
            "version that wrote it."
        )
    try:
        return _rebuilt(header, arrays)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StorageError(
            f"{str(path)!r} was written by sktifa {made_by} and doesn't fit sktifa "
            f"{sktifa.__version__}: {error}."
        ) from error


def _rebuilt(header: dict[str, Any], arrays: dict[str, Any]) -> Any:
    parameters = header["parameters"]
    if isinstance(parameters["class_weight"], list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    for name, value in parameters.items():
        if isinstance(value, list):
            parameters[name] = tuple(value)
    model = _MODELS[header["model"]](**parameters)
    state = {**model.__getstate__(), **header["attributes"]}
    state |= {"_row_graph": None, "_seen_nodes": None}
    state["spec_"] = EncoderSpec(**header["spec"])
    state["scaling_"] = Scaling(
        header["norm"],
        arrays.pop("scaling/mean", None),
        arrays.pop("scaling/scale", None),
    )
    if "feature_names_in_" in arrays:
        names = arrays.pop("feature_names_in_")
        state["feature_names_in_"] = names.astype(object)
    state["_network_state"] = {
        name.removeprefix("network/"): arrays.pop(name)
        for name in list(arrays)
        if name.startswith("network/")
    }
    model.__setstate__({**state, **arrays})
    return model


def _no_model(path: Any) -> StorageError:
    return StorageError(
        f"{str(path)!r} is not a whole file of sktifa.save; models that "
        "joblib has written are opened by joblib.load."
    )


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise ParameterError(f"{value!r} can't be saved in a file without code.")
