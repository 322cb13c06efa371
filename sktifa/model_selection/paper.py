"""The paper's own hyper-parameters and grids, kept beside our defaults."""

from __future__ import annotations

from typing import Any, Literal

from sktifa.exceptions import ParameterError

__all__ = ["paper_grid", "paper_preset"]

_METHOD: dict[str, Any] = {
    # Appendix C.3, bold values.
    "restart_probability": 0.15,
    "clarity_weight": 0.1,
    "negative_weight": 0.5,
    "pair_weight": 0.1,
    "weight_min": 1.0,
    "weight_max": 2.0,
    "hop_weight": 0.5,
    "feature_weight": 0.75,
    # As printed: KL(perturbed || clean).
    "divergence": "perturbed_to_clean",
    "pairing": "tifa",
    # What goes beyond the paper.
    "target_information": 0.0,
    "teacher_weight": 0.0,
}

_SCHEDULE: dict[str, Any] = {
    # Appendix C.4.
    "learning_rate": 0.0075,
    "learning_rate_decay": 0.95,
    "weight_decay": 0.005,
    "dropout": 0.5,
    "max_iter": 200,
    "min_iter": 30,
    "n_iter_no_change": 20,
    "monitor": "accuracy",
}

_ENCODER: dict[str, dict[str, Any]] = {
    "transductive": {"encoder": "gcn", "hidden_size": 64, "n_layers": 2},
    "inductive": {"encoder": "gcn", "hidden_size": 128, "n_layers": 3},
}


def paper_preset(
    setting: Literal["transductive", "inductive"] = "transductive",
) -> dict[str, Any]:
    """Return the hyper-parameters and the training schedule that the paper prints.

    Our defaults differ where validation accuracy says so; this is the paper's own
    choice (Appendix C), for comparisons. Where the paper leaves a value to be tuned
    for each graph (mu_2), the middle of its range is taken.

    Parameters
    ----------
    setting : {"transductive", "inductive"}, default="transductive"
        Two layers of width 64, or three of width 128.

    Returns
    -------
    dict
        Parameters of :class:`TIFAGCLClassifier`.

    Raises
    ------
    ParameterError
        If `setting` is neither.

    Examples
    --------
    >>> from sktifa import TIFAGCLClassifier, paper_preset
    >>> TIFAGCLClassifier(**paper_preset()).learning_rate_decay
    0.95
    """
    if setting not in _ENCODER:
        raise ParameterError(
            f'setting must be "transductive" or "inductive", not {setting!r}.'
        )
    return {**_METHOD, **_SCHEDULE, **_ENCODER[setting]}


# Appendix C.3, in the order printed there.
_METHOD_GRID: dict[str, list[Any]] = {
    "restart_probability": [0.05, 0.1, 0.15, 0.2, 0.25],
    "clarity_weight": [0, 0.05, 0.1, 0.15, 0.2, 0.5],
    "negative_weight": [0, 0.1, 0.25, 0.33, 0.5, 1],
    "pair_weight": [0, 0.05, 0.1, 0.15, 0.2, 0.25],
    "weight_min": [0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5],
    "weight_max": [1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5],
    "hop_weight": [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5],
    "feature_weight": [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5],
}

# Beyond the paper.
_EXTENDED_GRID: dict[str, list[Any]] = {
    "encoder": ["appnp", "gcn"],
    "propagation_steps": [2, 4, 10],
    "teleport": [0.1, 0.2, 0.3],
    "target_information": [0.0, 0.5, 1.0, 2.0],
    "teacher_weight": [0.0, 0.3, 0.5, 1.0],
    "teacher_sharpness": [1.0, 2.0, 3.0],
    "trust": ["cross-fitted", "tifa"],
    # Rows that sum to one suit CiteSeer's few words a node, with little decay.
    "feature_norm": ["auto", "l1"],
    "weight_decay": [0.0005, 0.001, 0.005],
    "weight_min": [0.2, 1.0],
    "weight_max": [1.0, 2.2],
}

# Appendix C.4. The paper fixes size and depth by the setting.
_ENCODER_GRID: dict[str, list[Any]] = {
    "hidden_size": [16, 32, 64, 128, 256],
    "n_layers": [2, 3, 4, 5],
    "learning_rate": [0.005, 0.0075, 0.01, 0.0125],
    "dropout": [0.2, 0.3, 0.4, 0.5, 0.6],
}


def paper_grid(
    setting: Literal["transductive", "inductive"] = "transductive",
    part: Literal["method", "encoder", "all", "extended"] = "method",
    prefix: str = "",
) -> list[dict[str, list[Any]]]:
    """Return the paper's hyper-parameter grids (Appendix C) by our names.

    They are for ``TIFAGCLClassifier(**paper_preset())``: the class's own defaults leave
    the pair loss out.

    Pairs of loss weights in which the smallest is above the largest are left out: the
    grid is a list with a dict for each value of `weight_min`.

    Parameters
    ----------
    setting : {"transductive", "inductive"}, default="transductive"
        Values that the paper fixes by the setting (hidden size 64 and 2 layers, or 128
        and 3) come first in their lists.
    part : {"method", "encoder", "all", "extended"}, default="method"
        The eight hyper-parameters of TIFA-GCL, the four of the encoder, or both; or
        ours beyond the paper: what the propagated labels teach where they are trusted,
        and how scores are propagated. The method's grid has 3 million points, so it is
        one to draw from.
    prefix : str, default=""
        Comes before every name, ``"tifagclclassifier__"`` in a Pipeline.

    Returns
    -------
    list of dict
        For GridSearchCV, RandomizedSearchCV, the halving searches and our batched ones.

    Raises
    ------
    ParameterError
        If `setting` or `part` is unknown.

    See Also
    --------
    sktifa.paper_preset : One value of each: those in bold print.

    Examples
    --------
    >>> from sklearn.model_selection import ParameterSampler
    >>> from sktifa import paper_grid
    >>> grid = paper_grid(part="encoder")
    >>> grid[0]["dropout"]
    [0.2, 0.3, 0.4, 0.5, 0.6]
    >>> len(list(ParameterSampler(paper_grid(part="all"), 5, random_state=0)))
    5
    """
    fixed = paper_preset(setting)
    if part not in ("method", "encoder", "all", "extended"):
        raise ParameterError(
            f'part must be "method", "encoder", "all" or "extended", not {part!r}.'
        )
    if part == "extended":
        return [{prefix + name: list(v) for name, v in _EXTENDED_GRID.items()}]
    encoder = {
        name: sorted(values, key=lambda v: v != fixed[name])
        if name in ("hidden_size", "n_layers")
        else values
        for name, values in _ENCODER_GRID.items()
    }
    grids: list[dict[str, list[Any]]] = [{}]
    if part != "encoder":
        grids = [
            {
                **_METHOD_GRID,
                "weight_min": [low],
                "weight_max": [w for w in _METHOD_GRID["weight_max"] if w >= low],
            }
            for low in _METHOD_GRID["weight_min"]
        ]
    if part != "method":
        grids = [{**grid, **encoder} for grid in grids]
    return [
        {prefix + name: list(values) for name, values in grid.items()} for grid in grids
    ]
