"""
From CSV files to predictions
=============================

**Problem.** A table of customers with text, gaps and a few known answers, a table of
who calls whom, and an answer wanted for every customer, by name.

**Method.** ``Graph.read`` makes the graph, any classifier the predictions, and
``set_output`` has them come back by name.

**Comparison.** The same table without the calls.
"""

# %%
# Two files
# ---------
# Made up here; yours are there already. Customers with one plan are of another age on
# average, and call each other more often.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
n = 600
premium = rng.random(n) < 0.4
names = np.array([f"customer {i}" for i in range(n)])
customers = pd.DataFrame(
    {
        "name": names,
        "age": rng.normal(40 + 8 * premium, 10).round(),
        "region": rng.choice(["north", "south", "west"], n),
        "plan": np.where(premium, "premium", "basic"),
    }
)
customers.loc[rng.random(n) < 0.1, "age"] = None  # gaps
truth = customers["plan"].to_numpy(dtype=str)
known = rng.random(n) < 0.15
customers.loc[~known, "plan"] = None

caller = rng.integers(0, n, 5000)
called = rng.integers(0, n, 5000)
kept = (premium[caller] == premium[called]) | (rng.random(5000) < 0.3)
calls = pd.DataFrame({"from": names[caller[kept]], "to": names[called[kept]]})

folder = Path(tempfile.mkdtemp())
customers.to_csv(folder / "customers.csv", index=False)
calls.to_csv(folder / "calls.csv", index=False)
print((folder / "customers.csv").read_text()[:160])

# %%
# One graph
# ---------

from sktifa import Graph, TIFAGCLClassifier

data = Graph.read(
    folder / "customers.csv",
    folder / "calls.csv",
    id="name",
    source="from",
    target="to",
    label="plan",
)
graph, y = data.graph, data.target
print(graph)
print(*data.report, sep="\n")

# %%
# Predictions by name
# -------------------

model = TIFAGCLClassifier(missing_label=None, max_iter=100, random_state=0)
model.set_output(transform="pandas").fit(graph, y)
answer = model.predict_proba(graph)
answer.to_csv(folder / "predictions.csv")
print(answer.head().round(2))

# %%
# What the calls are worth
# ------------------------

from sklearn.linear_model import LogisticRegression

rows = np.asarray(graph.features)
table_only = LogisticRegression().fit(rows[known], truth[known])
accuracy = {
    "table alone": np.mean(table_only.predict(rows[~known]) == truth[~known]),
    "table and calls": np.mean(model.predict(graph)[~known] == truth[~known]),
}
fig, ax = plt.subplots(figsize=(6, 1.6), layout="constrained")
bars = ax.barh(list(accuracy), list(accuracy.values()))
ax.bar_label(bars, fmt="%.2f", padding=3)
ax.set(xlim=(0, 1), xlabel="accuracy on the customers without an answer")
plt.show()
