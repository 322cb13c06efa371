"""Work that fits share: what is remembered, by whom, and what it saves."""

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from sktifa import LabeledNodeKFold, TIFAGCLClassifier
from sktifa.cache import LocalMemory
from sktifa.classifiers import contrast
from sktifa.contrast.pairs import graph_distances, sample_pairs


def test_remembers_by_the_arguments_that_count():
    calls = []
    add = LocalMemory().cache(lambda a, b, note: calls.append(note) or a + b, ["note"])
    assert add(a=1, b=2, note="x") == add(a=1, b=2, note="y") == 3
    assert add(a=np.ones(2), b=2, note="z")[0] == 3
    assert calls == ["x", "z"]


def test_copies_share_and_the_oldest_goes():
    memory, calls = LocalMemory(max_items=2), []

    def note(x):
        calls.append(x)

    for copy in (memory, pickle.loads(pickle.dumps(memory)), clone(memory)):
        copy.cache(note)(x=1)
    assert calls == [1]
    for x in (2, 1, 3, 1, 2):
        memory.cache(note)(x=x)
    assert calls == [1, 2, 3, 2]
    memory.clear()
    memory.cache(note)(x=1)
    assert calls[-1] == 1


def test_threads_wait_for_the_first_and_errors_are_not_kept():
    calls, lock = [], threading.Lock()

    def slow(x):
        with lock:
            calls.append(x)
        time.sleep(0.05)
        if len(calls) == 1:
            raise ValueError("first")
        return x

    remembered = LocalMemory().cache(slow)
    with pytest.raises(ValueError, match="first"):
        remembered(x=1)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: remembered(x=1), range(4))) == [1] * 4
    assert calls == [1, 1]


@pytest.mark.parametrize("sparse_features", [True, False])
def test_shared_distances_give_the_same_pairs(cora, digits, sparse_features):
    graph = (cora if sparse_features else digits).graph
    p = np.random.default_rng(0).dirichlet(np.ones(5) / 3, graph.n_nodes)
    shared = graph_distances(graph.features, graph.adjacency)
    for options in ({}, {"hop_weight": 0}, {"feature_weight": 0, "n_positives": 2}):
        expected = sample_pairs(graph.features, graph.adjacency, p, **options)
        found = sample_pairs(
            graph.features, graph.adjacency, p, **options, distances=shared
        )
        for a, b in zip(expected, found, strict=True):
            # A block's product may differ in the last bit from the whole's.
            assert (a == b).mean() > 0.999


@pytest.mark.parametrize("kind", ["local", "disk"])
def test_a_search_does_static_work_once(digits, monkeypatch, tmp_path, kind):
    graph, y = digits.graph[::4], digits.target[::4]
    memory = LocalMemory() if kind == "local" else joblib.Memory(tmp_path, verbose=0)
    counts = {}

    def counted(work, *args, **kwargs):
        counts[work.__name__] = counts.get(work.__name__, 0) + 1
        return work(*args, **kwargs)

    works = "propagated_labels", "feature_affinity", "nearest_pairs", "graph_distances"
    for name in works:
        work = getattr(contrast, name)
        monkeypatch.setattr(contrast, name, partial(counted, work))
    model = TIFAGCLClassifier(
        pairing="tifa", max_iter=2, device="cpu", random_state=0, memory=memory
    )
    grid = {
        "restart_probability": [0.1, 0.2],
        "hop_weight": [0.5, 1.0],
        "negative_weight": [0.1, 0.5],
        "learning_rate": [0.01, 0.02],
    }
    cached = GridSearchCV(model, grid, cv=LabeledNodeKFold(2), refit=False)
    cached.fit(graph, y)
    # 32 fits: 2 folds x 2 restart probabilities (x 2 hop weights).
    assert counts == dict(zip(works, (4, 2, 8, 1), strict=True))
    counts.clear()
    plain = clone(cached).set_params(estimator__memory=None).fit(graph, y)
    assert counts == dict.fromkeys(works[:3], 32)
    for name in ("split0_test_score", "split1_test_score"):
        np.testing.assert_array_equal(cached.cv_results_[name], plain.cv_results_[name])
