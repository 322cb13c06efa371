"""``sktifa classify``: two files in, a class, its chances and a report out."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from sktifa.calibration import deal_folds
from sktifa.classifiers import TIFAGCLClassifier
from sktifa.cli.answers import Answers
from sktifa.cli.data import LabelledGraph, add_data_arguments, check_data, read_data
from sktifa.cli.report import html_report
from sktifa.cli.terminal import at_least, check_outputs, progress
from sktifa.device import resolve_device
from sktifa.diagnostics import diagnose
from sktifa.files import whole_file
from sktifa.frames import write_table
from sktifa.frames.table import PARQUET_FILES, TEXT_FILES, require_parquet
from sktifa.model_selection import BatchedRandomizedSearchCV, paper_grid

__all__ = ["add_parser"]

logger = logging.getLogger(__name__)

DESCRIPTION = """\
Predict a class for every node of a graph from the labels of some.

PREDICTIONS has a row a node, in the order of NODES: node, label (as given),
prediction, confidence, gain, and the probability of each class.

confidence is the probability of the predicted class. It is calibrated: models that
have not seen some of the labels predict them, and the probabilities of the final
model are softened or sharpened (by one temperature) to be as sure as those models
were right. That holds for nodes like the labelled ones. gain tells how much of the
labels' information reaches a node; where it is small, doubt the prediction first."""


def add_parser(commands: Any) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "classify",
        help="predict a class for every node in your files",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_data_arguments(parser)
    out = parser.add_argument_group("results")
    out.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="PREDICTIONS",
        help="file of predictions to write",
    )
    out.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="page to write: how good the predictions are, and where to doubt them",
    )
    out.add_argument(
        "--force", action="store_true", help="write over files that are there"
    )
    model = parser.add_argument_group("model")
    model.add_argument(
        "--search",
        nargs="?",
        type=at_least(1),
        const=20,
        metavar="N",
        help="choose hyper-parameters: the best of N random candidates (20) by "
        "cross-validation",
    )
    model.add_argument(
        "--folds",
        type=at_least(2),
        default=5,
        help="of the cross-validation (%(default)s)",
    )
    model.add_argument(
        "--epochs", type=at_least(1), default=None, help="of training, at most"
    )
    model.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    model.add_argument(
        "--seed", type=at_least(0), default=0, help="of all draws (%(default)s)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Classify, once all that can be checked before is checked."""
    check_data(arguments)
    outputs: list[tuple[str, Path, Sequence[str]]] = [
        ("--out", arguments.out, TEXT_FILES + PARQUET_FILES)
    ]
    if arguments.report is not None:
        outputs.append(("--report", arguments.report, (".html", ".htm")))
    check_outputs(outputs, [arguments.nodes, arguments.edges], force=arguments.force)
    if arguments.out.suffix.lower() in PARQUET_FILES:
        require_parquet()
    resolve_device(arguments.device)
    data = read_data(arguments)
    answers = _answers(data, arguments)
    for line in answers.summary():
        logger.info(line)
    write_table(answers.columns(), arguments.out)
    logger.info("predictions: %s", arguments.out)
    if arguments.report is not None:
        found = diagnose(data.graph, data.labels, missing_label=None)
        page = html_report(answers, found._repr_html_())
        with whole_file(arguments.report) as part:
            part.write_text(page, encoding="utf-8")
        logger.info("report: %s", arguments.report)


def _answers(data: LabelledGraph, arguments: argparse.Namespace) -> Answers:
    X, codes = data.graph[data.labelled], data.codes[data.labelled]
    folds = deal_folds(codes, arguments.folds, arguments.seed)
    if not folds:
        logger.warning(
            "no class has two labels: nothing tells how often the model is right, and "
            "confidence is its own"
        )
    model = TIFAGCLClassifier(
        max_iter=arguments.epochs or "auto",
        device=arguments.device,
        random_state=arguments.seed,
    )
    search = arguments.search if folds else None
    steps = ["searching"] * bool(search) + ["checking"] * len(folds) + ["training"]
    with progress(steps) as step:
        if search:
            step()
            splits = [(np.setdiff1d(np.arange(len(X)), fold), fold) for fold in folds]
            found = BatchedRandomizedSearchCV(
                model,
                paper_grid(part="all"),
                n_iter=search,
                cv=splits,
                random_state=arguments.seed,
                refit=False,
            ).fit(X, codes)
            model.set_params(**found.best_params_)
            logger.info("best of %d candidates: %s", search, found.best_params_)
        unseen = np.full((len(X), len(data.classes)), np.nan)
        unseen_gain = np.full(len(X), np.nan)
        for fold in folds:
            step()
            others = np.setdiff1d(np.arange(len(X)), fold)
            fitted = clone(model).fit(X[others], codes[others])
            unseen[fold] = fitted.predict_proba(X[fold])
            unseen_gain[fold] = fitted.gain_[X[fold].nodes]
        step()
        model.fit(X, codes)
    return Answers(data, model, unseen, unseen_gain)
