"""Models in files of tensors and JSON, which run nothing when they are opened."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as as_bytes

import sktifa
from sktifa.classifiers import GNNClassifier, TIFAGCLClassifier
from sktifa.classifiers.prepare import Seen
from sktifa.exceptions import ParameterError, StorageError
from sktifa.files import whole_file
from sktifa.tensors.scaling import Scaling
from sktifa.training.encoders import EncoderSpec

__all__ = ["load", "save"]

# 1 was an npz archive. Raised whenever a file of the version before can't be read.
_FORMAT = 2
_MODELS = {model.__name__: model for model in (GNNClassifier, TIFAGCLClassifier)}
# Prediction needs none of these, which hold others' code or run in a fit alone.
_LEFT_OUT = ("memory", "sampler", "extra_terms", "random_state")
_FACTS = (
    "n_features_in_",
    "n_iter_",
    "best_iter_",
    "fitted_on_",
    "_sklearn_output_config",  # what `set_output` has chosen, if anything
)
_CURVES = ("loss_curve_", "validation_scores_", "validation_losses_")
_ARRAYS = ("classes_", "gain_", "loss_weights_")
# What reading another file, or half of one, raises.
_UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    EOFError,
    SafetensorError,
    zipfile.BadZipFile,
)


def save(model: GNNClassifier, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to a file.

    The file is one of safetensors; what is no tensor stands as JSON in its metadata:
    version, parameters, classes, and in `fitted_on_` the size and the fingerprint of
    the graph of `fit`. A full disk leaves what was there. Where `memory`, `sampler`,
    `extra_terms` or `random_state` are objects they are left out: prediction needs
    none.

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
    >>> model.fit(data.graph, data.target).fitted_on_["n_nodes"]
    60
    >>> sktifa.save(model, "model.safetensors")  # doctest: +SKIP
    >>> sktifa.load("model.safetensors").predict(data.graph)  # doctest: +SKIP
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
    if model.seen_.rows is not None:
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
    values = {name: state[name] for name in _ARRAYS if state.get(name) is not None}
    if model.seen_.nodes is not None:
        values["_seen_nodes"] = model.seen_.nodes
    if "feature_names_in_" in state:
        values["feature_names_in_"] = state["feature_names_in_"].astype(str)
    for name in ("mean", "scale"):
        if (learned := getattr(state["scaling_"], name)) is not None:
            values[f"scaling/{name}"] = learned
    values |= {f"network/{k}": v for k, v in state["_network_state"].items()}
    # There are no tensors of text.
    texts = {k: v.tolist() for k, v in values.items() if v.dtype.kind == "U"}
    header = {
        "format": _FORMAT,
        "sktifa": sktifa.__version__,
        "model": kind,
        "parameters": parameters,
        "spec": asdict(state["spec_"]),
        "norm": state["scaling_"].norm,
        "attributes": {
            name: state[name] for name in (*_FACTS, *_CURVES) if name in state
        },
        "texts": texts,
    }
    content = as_bytes(
        {k: np.ascontiguousarray(v) for k, v in values.items() if k not in texts},
        metadata={"sktifa": json.dumps(header, default=_plain)},
    )
    try:
        with whole_file(Path(path)) as part:
            part.write_bytes(content)
    except OSError as error:
        raise StorageError(
            f"the model can't be written to {str(path)!r}: {error.strerror or error}. "
            "Make room, or name a file elsewhere."
        ) from error


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
        header, arrays = _read(path)
        made_by, format_ = header["sktifa"], header["format"]
    except FileNotFoundError as error:
        raise StorageError(f"there is no file {str(path)!r}.") from error
    except _UNREADABLE as error:
        raise StorageError(
            f"{str(path)!r} is not a whole file of sktifa.save; models that joblib has "
            "written are opened by joblib.load."
        ) from error
    if format_ not in (1, _FORMAT):
        raise StorageError(
            f"{str(path)!r} was written by sktifa {made_by} in format {format_}, but "
            f"sktifa {sktifa.__version__} reads formats up to {_FORMAT}: open it with "
            "the version that wrote it."
        )
    try:
        return _rebuilt(header, arrays)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StorageError(
            f"{str(path)!r} was written by sktifa {made_by} and doesn't fit sktifa "
            f"{sktifa.__version__}: {error}."
        ) from error


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a file tells in JSON, and its arrays."""
    with Path(path).open("rb") as opened:
        is_archive = opened.read(2) == b"PK"
    if is_archive:  # format 1
        with np.load(path, allow_pickle=False) as archive:
            arrays = dict(archive)
        return json.loads(str(arrays.pop("header")[()])), arrays
    with safe_open(path, "numpy") as file:
        header = json.loads(file.metadata()["sktifa"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}
    texts = {name: np.array(text) for name, text in header["texts"].items()}
    return header, arrays | texts


def _rebuilt(header: dict[str, Any], arrays: dict[str, Any]) -> Any:
    parameters = header["parameters"]
    if isinstance(parameters["class_weight"], list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    for name, value in parameters.items():
        if isinstance(value, list):
            parameters[name] = tuple(value)
    model = _MODELS[header["model"]](**parameters)
    state = {**model.__getstate__(), **header["attributes"]}
    state["seen_"] = Seen(arrays.pop("_seen_nodes", None))
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


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise ParameterError(f"{value!r} can't be saved in a file without code.")
