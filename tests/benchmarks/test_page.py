"""The page and the figures are made of the records alone."""

import json

import numpy as np
import pytest

from benchmarks.accuracy import page as module
from benchmarks.accuracy.experiments import EXPERIMENTS
from benchmarks.accuracy.figures import DRAW
from benchmarks.accuracy.methods import METHODS


def record(method, graph="Cora", test_mean=82.0, **more):
    return {
        "method": method, "graph": graph, "labels": 20, "test_mean": test_mean,
        "test_std": 1.0, "n_splits": 6, "n_seeds": 2, "candidates": 40,
        "budget": {"candidates": 40, "splits": 5, "finalists": 4, "final_splits": 20},
        "device": "cpu", "params": {}, **more,
    }  # fmt: skip


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RESULTS", tmp_path)

    def write(name, records):
        (tmp_path / f"{name}.json").write_text(json.dumps(records))

    return write


def plain(page):
    return page.replace("\u00a0", " ")


def test_page_sets_ours_beside_the_papers(results):
    told = {"difference": 1.25, "standard_error": 0.2, "p": 0.01}
    results("table1", [record("GCN"), record("TIFA-GCL", minus={"GCN": told})])
    page = plain(module.page())
    # The paper: 81.0 and 83.6.
    assert "| GCN | 82.0 ± 1.0 (81.0, +1.0) |" in page
    assert "| TIFA-GCL | 82.0 ± 1.0 (83.6, -1.6) |" in page
    assert "| TIFA-GCL minus GCN | **+1.25 ± 0.20, p = 0.01** |" in page
    effort = (
        "6 splits, 2 seeds, best of 40 candidates on 5 splits and of 4 finalists on 20"
    )
    assert f"- {effort}, cpu." in page
    assert "Table 2" not in page


def test_page_says_which_graphs_had_a_smaller_budget(results):
    small = {"candidates": 8, "splits": 2, "finalists": 2, "final_splits": 5}
    results(
        "table1",
        [
            record("GCN"),
            record("GAT"),
            record("GCN", "PubMed", budget=small),
            record("ours", "PubMed", budget=None),
        ],
    )
    page = plain(module.page())
    assert "- Cora: 6 splits, 2 seeds, best of 40 candidates" in page
    assert "- PubMed: 6 splits, 2 seeds, best of 8 candidates on 2 splits" in page
    assert "- PubMed: 6 splits, 2 seeds, cpu." in page
    assert "models in all" not in page


def test_page_says_where_ours_is_uniform_contrast(results):
    plain = {"weighting": "uniform", "perturbation": "uniform", "dropout": 0.5}
    plain |= {"target_information": 0.0, "teacher_weight": 0.0}
    results(
        "table3",
        [
            record("ours", "Cora", params=plain | {"weighting": "tifa"}),
            record("ours", "CiteSeer", params=plain),
            record("ours, trust uniform", "PubMed", params=plain),
        ],
    )
    assert "candidates of uniform contrast" in module.page()
    assert "can't be taken out: CiteSeer." in module.page()


def test_page_says_whose_losses_became_infinite(results):
    told = [record("GCN", diverged=0), record("GAT", diverged=3, n_splits=4, n_seeds=5)]
    results("table1", told)
    page = module.page()
    assert "is told: 3 of 20 models of GAT on Cora." in page
    results("table1", told[:1])
    assert "became infinite, so" not in module.page()


def test_page_says_what_a_table_took(results):
    spent = {"models": 600, "seconds": 90.0}
    devices = {"GCN": "cuda", "GAT": "cuda", "MLP": "cpu"}
    results("table1", [record(m, spent=spent, device=d) for m, d in devices.items()])
    assert "- 1,800 models in all" in module.page()
    assert "side by side: 3 (cuda); 2 (cpu)." in module.page()
    assert "- Wall time: not recorded." in module.page()


def test_page_says_what_the_runs_took_by_the_wall(results):
    def spent(*runs):
        told = [
            {"run": run, "device": "cuda", "jobs": 3, "models": 2, "seconds": 180.0}
            | {"wall": wall}
            for run, wall in runs
        ]
        return {"models": 4, "seconds": 360.0, "runs": told}

    # Both rows were trained in the first run, whose wall counts once, the longest.
    rows = [spent(("1st", 60.0), ("2nd", 120.0)), spent(("1st", 240.0))]
    results("table1", [record(m, spent=s) for m, s in zip("ab", rows, strict=True)])
    told = module.page()
    assert "Of 6 of the models it is recorded" in told
    # Three times 180 s of processes, of which three share the device.
    assert "6 minutes by the wall, of which they took 3 (cuda)" in told


def test_verdict_says_where_a_claim_holds(results):
    def trial(graph, difference, p):
        told = {"difference": difference, "standard_error": 0.2, "p": p}
        return record("TIFA-GCL", graph, minus={"uniform-GCL": told})

    results(
        "study",
        [
            trial("Cora", 0.8, 0.001),
            trial("CiteSeer", 0.5, 0.02),
            trial("PubMed", -0.9, 0.001),
        ],
    )
    ablation = {"difference": -0.7, "standard_error": 0.1, "p": 0.01}
    results(
        "table3",
        [record("TIFA-GCL, uniform perturbation", minus={"TIFA-GCL": ablation})],
    )
    page = plain(module.page())
    # The second of three p-values, .02, is the largest: it stays, and is below .05.
    assert (
        "| TIFA-GCL is better than uniform contrast | 20 | "
        "Cora +0.80 ± 0.20; CiteSeer +0.50 ± 0.20 |  | PubMed -0.90 ± 0.20 |"
    ) in page
    assert "| … by its perturbations | 20 | Cora +0.70 ± 0.10 |  |  |" in page
    assert "SAINT" not in page


def test_verdict_says_where_splits_are_too_few_for_the_test(results):
    # The least p of six splits is 2 / 2^6 = .03, of five .06.
    told = {"difference": 0.8, "standard_error": 0.1, "p": 2 / 2**5}
    ours, other = "Inductive GAT, SAINT-RW, uniform-GCL", "Inductive GAT, SAINT-RW, No"
    results(
        "table2",
        [record(ours, "DBLP", minus={other: told | {"p": 2 / 2**6}}),
         record(ours, "Physics", n_splits=5, minus={other: told})],
    )  # fmt: skip
    shown = "DBLP +0.80 ± 0.10; Physics +0.80 ± 0.10 (5 splits)"
    assert f"| 20 |  | {shown} |  |" in plain(module.page())


def test_what_holds_nowhere_is_explained(results):
    text = "TIFA-GCL is better than uniform contrast"

    def trial(graph, p):
        told = {"difference": 0.8, "standard_error": 0.2, "p": p}
        return record("TIFA-GCL", graph, minus={"uniform-GCL": told})

    results("study", [trial("Cora", 0.2), trial("CiteSeer", 0.3)])
    assert f"- *{text}*: {module.WHY[text]}" in module.page()
    results("study", [trial("Cora", 0.001), trial("CiteSeer", 0.3)])
    assert "What holds nowhere" not in module.page()


def test_few_labels_are_told_apart(results):
    def trial(graph, labels, difference, p):
        told = {"difference": difference, "standard_error": 0.2, "p": p}
        return record("TIFA-GCL", graph, labels=labels, minus={"uniform-GCL": told})

    trials = [
        trial("Cora", 5, -1.5, 0.03),
        trial("Cora", 20, 0.8, 0.01),
        trial("CiteSeer", 20, 0.1, 0.9),
    ]
    results("study", [*trials, record("GCN", labels=5)])
    page = plain(module.page())
    # Holm's rule is one for all three: twice .03 is above .05.
    assert (
        "| TIFA-GCL is better than uniform contrast | 20 | "
        "Cora +0.80 ± 0.20 | CiteSeer +0.10 ± 0.20 |  |\n"
        "|  | 5 |  | Cora -1.50 ± 0.20 |  |\n"
    ) in page
    few = page.split("**5 labels a class**")[1].split("**20 labels a class**")[0]
    assert "|  | Cora |\n| --- | --- |\n| TIFA-GCL | 82.0 ± 1.0 |\n| GCN |" in few
    assert "| TIFA-GCL minus uniform-GCL | -1.50 ± 0.20, p = 0.06 |" in few
    # Of one graph they stand side by side, and the picture tells the accuracies.
    results("study", [])
    results("figure3", trials[:2])
    page = plain(module.page())
    assert "|  | 5 labels | 20 labels |" in page
    assert "82.0" not in page


def test_inductive_rows_stand_beside_the_papers_on_products(results):
    told = {"difference": 2.0, "standard_error": 0.2, "p": 0.004}
    plain_walks, sharp = (
        "SAINT-TIFA, t = 0, walks of 2",
        "SAINT-TIFA, t = 1, walks of 2",
    )
    results(
        "table2",
        [
            record("Inductive GAT, SAINT-RW, No", "DBLP", n_seeds=1),
            record("Inductive GAT, SAINT-TIFA, No", "DBLP", n_seeds=1),
        ],
    )
    results(
        "table6",
        [
            record(plain_walks, "DBLP", 70.0, transition_std_mean=0.0),
            record(plain_walks, "Computers", transition_std_mean=0.0),
            record(
                sharp,
                "Computers",
                84.0,
                transition_std_mean=0.03,
                minus={plain_walks: told},
            ),
        ],
    )
    page = plain(module.page())
    assert "|  | DBLP | ogbn-products, the paper's |" in page
    assert "| GAT, SAINT-RW, No | 82.0 ± 1.0 | 80.0 ± 0.4 |" in page
    assert "| GAT, SAINT-TIFA, No | 82.0 ± 1.0 |  |" in page
    assert "6 splits, 1 seed, best" in page
    dblp, computers = page.split("**Computers**")
    assert "| 0 | 0.000 (0.000) | 70.0 ± 1.0 (81.6) |  |  |  |" in dblp
    assert "| 0 | 0.000 (0.000) | 82.0 ± 1.0 (81.6) |  |  |  |" in computers
    assert "| 1 | 0.030 (0.032) | 84.0 ± 1.0 (79.9) |  |  |  |" in page
    assert "| 1 | **+2.00 ± 0.20, p = 0.004** |  |  |  |" in page


def test_claims_are_tried():
    for text, name, ours, other in module.CLAIMS:
        assert (ours, other) in EXPERIMENTS[name].against, text
    assert module.WHY.keys() <= {text for text, *_ in module.CLAIMS}


def test_methods_of_the_paper_have_our_names():
    for name, table in module.PAPER.items():
        if name in ("table4", "table6_transition_std"):
            continue
        for method in table:
            assert method in METHODS, (name, method)
        of_table = {cell.method for cell in EXPERIMENTS[name.split("_")[0]].cells}
        assert set(table) <= of_table, name


def test_every_figure_can_be_drawn(tmp_path):
    rng = np.random.default_rng(0)
    for name, draw in DRAW.items():
        if name == "figure2":
            records = [
                record(method, share=[0.9, 0.4], share_std=[0.1, 0.1])
                for method in ("All", "Neighbor")
            ]
        else:
            records = [
                record(
                    cell.method,
                    cell.graph,
                    test=rng.random(3).tolist(),
                    by_gain=rng.random((3, 10)).tolist(),
                    right=np.full((10, 10), 8).tolist(),
                    count=np.full((10, 10), 20).tolist(),
                    nodes={
                        key: rng.random(5).tolist()
                        for key in ("intensity_rank", "clarity_rank", "right")
                    },
                )
                for cell in EXPERIMENTS[name].cells
                if cell.labels == 20
            ]
        figure = draw(records)
        figure.savefig(tmp_path / "figure.png", dpi=40)
        for ax in figure.axes:
            column = ax.get_shared_x_axes().get_siblings(ax)
            assert ax.get_ylabel() or any(x.get_xlabel() for x in column), name


def test_encoders_that_were_not_run_take_no_room():
    records = [record("Encoder GAT"), record("Encoder ARMA, TIFA-GCL")]
    (ax,) = DRAW["figure3"](records).axes
    assert [label.get_text() for label in ax.get_xticklabels()] == ["GAT", "ARMA"]
