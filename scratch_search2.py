import sys, time, collections, cProfile, pstats
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from benchmarks.data import load, paper_splits
from benchmarks.search._common import candidates
from sktifa import GNNClassifier, TIFAGCLClassifier
from sktifa.model_selection import predefined_validation_split
from sktifa.search import BatchedGridSearchCV
from sktifa import search, stacked

spent = collections.Counter()


def timed(owner, name):
    f = getattr(owner, name)

    def g(*a, **k):
        torch.cuda.synchronize()
        t = time.perf_counter()
        try:
            return f(*a, **k)
        finally:
            torch.cuda.synchronize()
            spent[name] += time.perf_counter() - t

    setattr(owner, name, g)


data = load("Cora")
train, val, _ = paper_splits(data, 1)[0]
nodes, cv = predefined_validation_split(train, val)
X, y = data.graph[nodes], data.target[nodes]
given = {"X_val": data.graph[val], "y_val": data.target[val]}
grid = candidates(32)
n_alone = int(sys.argv[1])


def go(model, mine):
    torch.cuda.synchronize()
    t = time.perf_counter()
    s = BatchedGridSearchCV(model, mine, cv=cv, refit=False).fit(X, y, **given)
    torch.cuda.synchronize()
    return time.perf_counter() - t, s


for cls in (GNNClassifier, TIFAGCLClassifier):
    model = cls(device="cuda", random_state=0)
    mine = (
        grid
        if cls is TIFAGCLClassifier
        else [
            {k: v for k, v in p.items() if k in ("learning_rate", "dropout")}
            for p in grid
        ]
    )
    go(clone(model).set_params(max_iter=3), mine[:2])
    a, s = go(model, mine)
    b, s = go(model, mine)
    print(
        cls.__name__,
        "batched ms/cand",
        a / 32 * 1e3,
        b / 32 * 1e3,
        "best",
        s.cv_results_["mean_test_score"].max(),
        flush=True,
    )
    if n_alone:
        GridSearchCV(
            clone(model).set_params(max_iter=3), mine[:1], cv=cv, refit=False
        ).fit(X, y, **given)
        t = time.perf_counter()
        o = GridSearchCV(model, mine[:n_alone], cv=cv, refit=False).fit(X, y, **given)
        t = (time.perf_counter() - t) / n_alone
        d = (
            s.cv_results_["mean_test_score"][:n_alone]
            - o.cv_results_["mean_test_score"]
        )
        print("  alone ms", t * 1e3, "times", t / b * 32, "score diff", d, flush=True)
for owner, names in (
    (search, ("prepare", "_scored", "_evaluate_stack")),
    (
        stacked._Stack,
        (
            "__init__",
            "_recorded",
            "_run",
            "_finish",
            "_leave_out",
            "_gather",
            "_pair_operator",
        ),
    ),
    (TIFAGCLClassifier, ("_contrast_terms",)),
):
    for n in names:
        timed(owner, n)
for cls in (GNNClassifier, TIFAGCLClassifier):
    spent.clear()
    model = cls(device="cuda", random_state=0)
    mine = (
        grid
        if cls is TIFAGCLClassifier
        else [
            {k: v for k, v in p.items() if k in ("learning_rate", "dropout")}
            for p in grid
        ]
    )
    pr = cProfile.Profile()
    pr.enable()
    t, s = go(model, mine)
    pr.disable()
    print(
        cls.__name__,
        "total",
        t,
        {k: round(v * 1e3, 1) for k, v in spent.items()},
        flush=True,
    )
    pstats.Stats(pr).sort_stats("tottime").print_stats(12)
    kept = {}
    old = stacked._Stack._recorded

    def rec(self):
        out = old(self)
        kept.setdefault("calls", []).append((self.blocks.n_models, float(self.epoch)))
        if "done" not in kept:
            kept["done"] = 1
            e, u = out
            for _ in range(3):
                e()
                u()
            torch.cuda.synchronize()
            from torch.profiler import profile, ProfilerActivity

            with profile(activities=[ProfilerActivity.CUDA]) as p:
                for _ in range(10):
                    e()
                    u()
                torch.cuda.synchronize()
            print(
                p.key_averages().table(
                    sort_by="cuda_time_total", row_limit=16, max_name_column_width=60
                )[-5200:]
            )
            torch.cuda.synchronize()
            t0 = time.perf_counter()
            for _ in range(50):
                e()
                u()
            torch.cuda.synchronize()
            t1 = time.perf_counter()
            for _ in range(50):
                e()
            torch.cuda.synchronize()
            t2 = time.perf_counter()
            print("epoch ms", (t1 - t0) * 20, "evaluation ms", (t2 - t1) * 20)
            if isinstance(self.views, stacked._RoundViews):
                torch.cuda.synchronize()
                t0 = time.perf_counter()
                for _ in range(20):
                    self.views.advance()
                torch.cuda.synchronize()
                print("draw of 8 ms", (time.perf_counter() - t0) * 50)
        return out

    stacked._Stack._recorded = rec
    go(model, mine)
    print(kept)
    stacked._Stack._recorded = old
