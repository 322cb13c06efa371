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
from sktifa.contrast.subgraph import PairSettings, PerturbationSettings
from sktifa.training.encoders import build_encoder
from sktifa.training.sources import NodeFeatures, SampledBatches, SubgraphContrast
from sktifa.tensors.device_graph import DeviceGraph
from sktifa.training.engine import ContrastiveObjective, _Step

cpu = torch.device("cpu")
codes = np.where(np.arange(600) < 300, y, -1)
sampler = SAINTTIFASampler(300, walk_length=1, sharpness=0, device="cpu",
                           random_state=3).fit(graph)
assert sampler.n_subgraphs_ == 2

def batches(of, n_ranks):
    return SampledBatches(
        sampler, DeviceGraph.from_graph(graph, cpu),
        NodeFeatures(graph.features, cpu), torch.from_numpy(codes),
        torch.full((600,), 1 / 300),
        contrast=SubgraphContrast(
            torch.linspace(0.2, 2, 600), PerturbationSettings(),
            torch.linspace(0.2, 2, 600), 0.0, PairSettings("uniform")),
        generator=torch.Generator().manual_seed(of), logits=None,
        rank=of, n_ranks=n_ranks)

def make():
    encoder = build_encoder("arma", 16, 8, 3, n_layers=2, dropout=0.0, residual=False,
                            normalization="layer", seed=rank)  # not the same seed
    objective = ContrastiveObjective(0.05, "clean_to_perturbed", 1.0, "evaluation")
    return _Step(encoder, objective)

def grads(step):
    return torch.cat([torch.zeros_like(p).ravel() if p.grad is None else p.grad.ravel()
                      for p in step.parameters()])

step = make()
shared = distributed.parallel(step)
(batch, clean), = batches(rank, 2).epoch(step.encoder, None)
for _ in range(2):  # a second step must work, too
    step.zero_grad()
    shared.train()
    shared(batch, clean, torch.Generator().manual_seed(0)).backward()
together = grads(step)

alone = make()
alone.load_state_dict(step.state_dict())
total = 0
for of in (0, 1):
    (batch, clean), = batches(of, 2).epoch(alone.encoder, None)
    alone.train()
    total = total + alone(batch, clean, torch.Generator().manual_seed(0)) / 2
total.backward()
error = (grads(alone) - together).abs().max().item()
tell(error=error, scale=grads(alone).abs().max().item(),
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
