"""A term, an encoder, a sampler and a data set added from outside.

What stands above the tests is the code of `docs/architecture.md`.
"""

import inspect
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils import Bunch

from sktifa import (
    BatchedGridSearchCV,
    GNNClassifier,
    Graph,
    LabeledNodeKFold,
    TIFAGCLClassifier,
    make_block_graph,
)
from sktifa.exceptions import DatasetError, GraphError, ParameterError
from sktifa.raw_files import fetch_files, read_npz, reading
from sktifa.sampling.subgraph import Subgraph
from sktifa.training.encoders import Layer
from sktifa.training.stacking import own
from sktifa.training.terms import Term


@dataclass(frozen=True)
class SmallScores(Term):
    """Scores should stay small."""

    weight: float = own(0.1)

    def __call__(self, step):
        return self.weight * step.logits.square().sum(-1)


class Difference(Layer):
    """What a node has more than its neighbours."""

    def forward(self, x, graph, drawn):
        h = self.transform(x, drawn)
        return h - graph.mean(h)


class RandomParts(BaseEstimator):
    """Deals the nodes to subgraphs, anew each epoch."""

    def __init__(self, n_parts=2, random_state=None):
        self.n_parts = n_parts
        self.random_state = random_state

    def fit(self, graph, y=None):
        self.graph_, self.n_subgraphs_ = graph, self.n_parts
        return self

    def epoch(self, index=0, *, rank=0, n_ranks=1, transform=None):
        rng = np.random.default_rng([self.random_state, index])
        dealt = np.array_split(rng.permutation(self.graph_.n_nodes), self.n_parts)
        for nodes in dealt[rank::n_ranks]:
            subgraph = self.induced(np.sort(nodes))
            yield subgraph if transform is None else transform(subgraph)

    def induced(self, nodes):
        whole = self.graph_.adjacency
        arcs = np.arange(whole.nnz)  # each arc's value is its own number
        part = sparse.csr_array((arcs, whole.indices, whole.indptr), whole.shape)
        part = part[nodes][:, nodes]
        return Subgraph(
            nodes=torch.from_numpy(nodes),
            crow=torch.from_numpy(part.indptr).int(),
            col=torch.from_numpy(part.indices).int(),
            arcs=torch.from_numpy(part.data),
        )


def fetch_friends(root, download_if_missing=True):
    """Fetch who knows whom."""
    urls = {"friends.npz": "https://example.org/friends.npz"}
    fetch_files(root, urls, download_if_missing)
    raw = read_npz(root / "friends.npz", ["edges", "features", "labels"])
    with reading(root):  # what goes wrong names the folder
        graph = Graph.from_edge_index(raw["edges"], raw["features"])
    names = np.unique(raw["labels"]).astype(str)
    return Bunch(
        graph=graph,
        target=raw["labels"],
        target_names=names,
        DESCR=f"Friends: {graph}, {len(names)} classes.",
    )


ADDED = [SmallScores, Difference, RandomParts, fetch_friends]


@pytest.fixture(scope="module")
def data():
    return make_block_graph(200, 3, random_state=0)


def fitted(model, data, **params):
    params = {"max_iter": 5, "random_state": 0, "device": "cpu", **params}
    model = clone(model).set_params(**params)
    return model.fit(data.graph[::5], data.target[::5])


def scores_of_searches(model, grid, data):
    """Score candidates one by one, and as a stack."""
    model = clone(model).set_params(max_iter=5, random_state=0, device="cpu")
    for search in (GridSearchCV, BatchedGridSearchCV):
        found = search(
            model, grid, cv=LabeledNodeKFold(2), scoring="neg_log_loss", refit=False
        ).fit(data.graph, data.target)
        yield found.cv_results_["mean_test_score"]


@pytest.mark.parametrize("added", ADDED)
def test_each_takes_less_than_40_lines(added):
    assert len(inspect.getsource(added).splitlines()) < 40


def test_a_term_adds_its_value_to_the_loss(data):
    # So slow that the model stays what it was at the start.
    still = {"dropout": 0.0, "learning_rate": 1e-30, "max_iter": 1}
    plain = fitted(TIFAGCLClassifier(), data, **still)
    more = fitted(TIFAGCLClassifier(extra_terms=[SmallScores(0.5)]), data, **still)
    value = 0.5 * (plain.decision_function(data.graph) ** 2).sum(axis=1).mean()
    assert value > 0.01
    expected = plain.loss_curve_[0] + value
    assert more.loss_curve_[0] == pytest.approx(expected, rel=1e-5)


def test_a_term_without_weight_changes_nothing(data):
    plain, nothing, much = (
        fitted(TIFAGCLClassifier(extra_terms=terms), data).decision_function(data.graph)
        for terms in (None, [SmallScores(0.0)], [SmallScores(1.0)])
    )
    np.testing.assert_array_equal(plain, nothing)
    assert np.square(much).mean() < np.square(plain).mean()


@pytest.mark.filterwarnings("error")  # what is not stacked warns
def test_a_term_is_the_same_in_a_stack(data):
    grid = {"extra_terms": [[SmallScores(w)] for w in (0.0, 0.3, 1.0)]}
    alone, stacked = scores_of_searches(TIFAGCLClassifier(), grid, data)
    assert len(set(alone)) == 3
    np.testing.assert_array_equal(alone, stacked)


def test_an_encoder_computes_what_its_layers_say(data):
    model = fitted(GNNClassifier(Difference, feature_norm=None), data)
    adjacency = data.graph.adjacency.toarray().astype(float)
    mean = adjacency / np.maximum(adjacency.sum(axis=1, keepdims=True), 1)
    h = data.graph.features.astype(float)
    for last, layer in enumerate(model.network_.convolutions):
        h = h @ layer.weight[0].detach().numpy()
        h = h - mean @ h + layer.bias[0].detach().numpy()
        h = h if last else np.maximum(h, 0)
    scores = model.decision_function(data.graph)
    np.testing.assert_allclose(scores, h, atol=1e-4)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(data.graph), scores)
    again.set_params(prediction_memory=20_000)  # a few nodes at a time
    np.testing.assert_allclose(again.decision_function(data.graph), scores, atol=1e-5)


@pytest.mark.filterwarnings("error")  # what is not stacked warns
def test_an_encoder_is_the_same_in_a_stack(data):
    grid = {"learning_rate": [0.001, 0.01, 0.1], "encoder": [Difference]}
    alone, stacked = scores_of_searches(TIFAGCLClassifier(), grid, data)
    assert len(set(alone)) == 3
    np.testing.assert_array_equal(alone, stacked)


def test_an_encoder_whose_parameters_would_mix_is_refused(data):
    class Scaled(Difference):
        def __init__(self, n_in, n_out):
            super().__init__(n_in, n_out)
            self.scale = torch.nn.Parameter(torch.ones(n_out))

    with pytest.raises(ParameterError, match=r"convolutions.0.scale.*\[None\]"):
        fitted(GNNClassifier(Scaled), data)


def test_a_sampler_of_one_part_is_the_whole_graph(data):
    whole, one, three = (
        fitted(GNNClassifier(sampler=sampler, dropout=0.0), data)
        for sampler in (None, RandomParts(1), RandomParts(3))
    )
    np.testing.assert_allclose(one.loss_curve_, whole.loss_curve_, rtol=1e-5)
    scores = whole.decision_function(data.graph)
    np.testing.assert_allclose(one.decision_function(data.graph), scores, atol=1e-4)
    # Three steps an epoch get farther than one.
    assert three.loss_curve_[-1] < whole.loss_curve_[-1]


def test_a_sampler_deals_every_node_once(data):
    sampler = RandomParts(3, random_state=0).fit(data.graph)
    parts = list(sampler.epoch())
    nodes = torch.cat([part.nodes for part in parts])
    assert sorted(nodes.tolist()) == list(range(200))
    for part in parts:
        induced = data.graph.subgraph(part.nodes.numpy()).adjacency
        np.testing.assert_array_equal(part.crow, induced.indptr)
        np.testing.assert_array_equal(part.col, induced.indices)
    model = fitted(TIFAGCLClassifier(sampler=RandomParts(3)), data, max_iter=20)
    assert model.score(data.graph, data.target) > 0.7


def test_a_data_set_is_read_and_missed(data, tmp_path):
    with pytest.raises(DatasetError, match="friends.npz"):
        fetch_friends(tmp_path, download_if_missing=False)
    coo = data.graph.adjacency.tocoo()
    np.savez(
        tmp_path / "friends.npz",
        edges=np.stack([coo.row, coo.col]),
        features=data.graph.features,
        labels=data.target,
    )
    friends = fetch_friends(tmp_path)
    assert friends.graph.fingerprint == data.graph.fingerprint
    assert friends.DESCR.endswith("3 classes.")
    np.testing.assert_array_equal(friends.target, data.target)


@pytest.mark.parametrize(
    ("name", "place", "value", "says"),
    [
        ("nodes", 2, 200, r"nodes\[2\].* is 200; .* 200 nodes of the graph"),
        ("col", 1, 10**6, r"col\[1\].* is 1000000; .* nodes of the subgraph"),
        ("col", 0, -1, r"col\[0\].* is -1"),
        ("arcs", 3, 10**9, r"arcs\[3\].* arcs of the graph"),
        ("crow", 5, 0, "must ascend"),
        ("crow", -1, 10**6, r"crow\[\d+\]"),
        ("crow", slice(1, None), None, "entries in crow"),
        ("nodes", slice(0, 0), None, "at least a node"),
    ],
)
@pytest.mark.parametrize("model", [GNNClassifier(), TIFAGCLClassifier()])
def test_a_sampler_that_draws_what_is_not_there(data, name, place, value, says, model):
    class Broken(RandomParts):
        def induced(self, nodes):
            subgraph = super().induced(nodes)
            values = getattr(subgraph, name)
            if value is None:
                setattr(subgraph, name, values[place])
            else:
                values[place] = value
            return subgraph

    with pytest.raises(GraphError, match=says):
        fitted(model, data, sampler=Broken(random_state=0))
