"""Two processes on the CPU train one model."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from sktifa import distributed

PRELUDE = """
import json, sys, warnings
import numpy as np, torch
from sktifa import TIFAGCLClassifier, distributed
from sktifa.datasets import make_block_graph
from sktifa.sampling import SAINTTIFASampler
torch.set_num_threads(1)
made = make_block_graph(600, 3, average_degree=6, random_state=0)
graph, y = made.graph, made.target
distributed.join()
rank = distributed.rank()
def tell(**what):
    with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
        json.dump(what, file)
"""

GRADIENTS = (
    PRELUDE
    + """
from sktifa.classifiers.prepare import prepare
from sktifa.training.encoders import Draw, Dropout, build_encoder
from sktifa.training.stacking import stack
from sktifa.training.terms import Step

cpu = torch.device("cpu")
sampler = SAINTTIFASampler(300, walk_length=1, sharpness=0, device="cpu",
                           random_state=3)
model = TIFAGCLClassifier(
    "arma", hidden_size=8, normalization="layer", pairing="uniform",
    feature_mask_rate=0.0, sampler=sampler, device="cpu", random_state=0)
problem = prepare(model, graph, np.where(np.arange(600) < 300, y, -1), cpu)
encoder = build_encoder(problem.encoder, seed=0)
terms, target = stack([problem.terms], cpu), stack([problem.target], cpu)
parameters = list(encoder.parameters())
certain = Draw(torch.zeros(1, dtype=torch.int64), Dropout([0.0], 500, cpu))

def grads(of):
    source = problem.source(cpu)
    source._rank, source._n_ranks = of, 2
    # Perturbations have the process's seed.
    source._seed = of
    (batch,) = source.epoch()
    step = Step(encoder, batch, lambda number, row_keep: certain, target)
    losses = [term(step) for term in terms]
    loss = sum(l.mean() for l in losses)
    return torch.autograd.grad(loss, parameters, allow_unused=True)

def flat(parts):
    return torch.cat([torch.zeros_like(p).ravel() if g is None else g.ravel()
                      for g, p in zip(parts, parameters)])

together = flat(distributed.averaged(grads(rank), parameters))
alone = (flat(grads(0)) + flat(grads(1))) / 2
tell(error=(alone - together).abs().max().item(), scale=alone.abs().max().item(),
     gradient=together.tolist())
"""
)

FIT = (
    PRELUDE
    + """
train, val = np.arange(0, 200), np.arange(200, 300)
model = TIFAGCLClassifier(
    "sage", normalization="batch", device="cpu", max_iter=12, min_iter=2,
    n_iter_no_change=3,
    sampler=SAINTTIFASampler(100, walk_length=2, device="cpu"),
    random_state=None,
)
model.fit(graph[train], y[train], X_val=graph[val], y_val=y[val])
state = torch.cat([v.double().ravel() for v in model.network_.state_dict().values()])
tell(state=state.tolist(), n_iter=model.n_iter_, best=model.best_iter_,
     scores=model.validation_scores_, losses=model.loss_curve_,
     score=model.score(graph[300:], y[300:]))
"""
)


def run(script, folder, n_processes=2):
    path = folder / "script.py"
    path.write_text(script)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc_per_node={n_processes}",
            str(path),
            str(folder),
        ],  # fmt: skip
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"{r}.json").read_text()) for r in range(n_processes)]


def test_two_processes_gradient_is_that_of_one_on_both_subgraphs(tmp_path):
    told = run(GRADIENTS, tmp_path)
    assert told[0]["gradient"] == told[1]["gradient"]
    for one in told:
        assert one["scale"] > 1e-3
        assert one["error"] < 1e-6 + 1e-5 * one["scale"]


def test_two_processes_end_with_one_model(tmp_path):
    one, other = run(FIT, tmp_path)
    assert one == other
    assert 2 <= one["n_iter"] <= 12
    assert np.isfinite(one["state"]).all()


def test_alone_nothing_happens(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    distributed.join()
    assert distributed.rank() == 0 and distributed.n_ranks() == 1
    assert distributed.agree("x") == "x"


@pytest.mark.parametrize("n", [1, 2, 3])
def test_ranks_share_an_epoch(n):
    from sktifa.datasets import make_block_graph
    from sktifa.sampling import NeighborSampler

    sampler = NeighborSampler((2,), batch_size=20, seeds="all", random_state=0)
    sampler.fit(make_block_graph(100, 2, random_state=0).graph)
    parts = [list(sampler.epoch(0, rank=r, n_ranks=n)) for r in range(n)]
    assert len({len(part) for part in parts}) == 1
    seeds = [tuple(s.nodes[:20].tolist()) for part in parts for s in part]
    assert {node for part in seeds for node in part} == set(range(100))
