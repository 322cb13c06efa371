"""A fit after another: what goes on, and what is left where the second fails."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone

from sktifa import GNNClassifier, Graph, TIFAGCLClassifier, make_block_graph
from sktifa.exceptions import ParameterError, TrainingError
from sktifa.training.terms import Term


@pytest.fixture(scope="module")
def blocks():
    return make_block_graph(60, 3, random_state=0)


def test_a_warm_start_knows_its_classes(blocks):
    """As many, but others: scores of one would be taken for those of another."""
    graph, y = blocks.graph, blocks.target
    model = GNNClassifier(max_iter=2, warm_start=True).fit(graph, y)
    with pytest.raises(ParameterError, match=r"warm_start.* \[0, 1, 2\].* \[1, 2, 3\]"):
        model.fit(graph, y + 1)
    assert model.fit(graph, y.astype(float)).classes_.tolist() == [0, 1, 2]


@dataclass(frozen=True)
class Fails(Term):
    """A term of the loss that ends training by an error."""

    error: type[BaseException]

    def __call__(self, step):
        raise self.error


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"class_weight": {"z": 1}}, ParameterError),
        ({"extra_terms": ["none"]}, ParameterError),
        ({"extra_terms": [Fails(KeyError)]}, KeyError),
        ({"negative_ranks": (5, 1)}, ParameterError),
        ({"temperature": 1e-300}, TrainingError),
    ],
)
def test_a_fit_that_fails_leaves_the_last_as_it_was(
    blocks, parameters, error, warm_start
):
    """Else its network would go on with classes and scaling of the one that failed."""
    graph, y = blocks.graph, blocks.target
    model = TIFAGCLClassifier(max_iter=3, warm_start=warm_start, random_state=0)
    never = clone(model).set_params(**parameters)
    model.fit(graph, y)
    before, gain = model.predict_proba(graph), model.gain_
    other = Graph(graph.adjacency, 10 * graph.features + 3)
    labels = y if warm_start else np.array(["a", "b", "c"])[y]
    with pytest.raises(error):
        model.set_params(**parameters).fit(other, labels)
    np.testing.assert_array_equal(model.predict_proba(graph), before)
    np.testing.assert_array_equal(model.gain_, gain)
    assert model.classes_.tolist() == [0, 1, 2]
    with pytest.raises(error):
        never.fit(other, labels)
    assert not [name for name in vars(never) if name.endswith("_")]


def test_an_interrupt_of_the_preparation_leaves_the_last_fit(blocks, monkeypatch):
    graph, y = blocks.graph, blocks.target
    model = TIFAGCLClassifier(max_iter=3, random_state=0).fit(graph, y)
    before = model.predict(graph)

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(model.objective, "on_graph", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(graph, np.array(["a", "b", "c"])[y])
    np.testing.assert_array_equal(model.predict(graph), before)
