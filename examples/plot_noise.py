"""
Noisy labels
============

**Problem.** Some of the labels are wrong.

**Method.** A graph network sees neighbours: one wrong label stands against what the
neighbourhood says.

**Comparison.** The same network without edges, without contrast, and with it, as more
labels are wrong.
"""

# %%
# Make some labels wrong
# ----------------------

import matplotlib.pyplot as plt
import numpy as np

from sktifa import GNNClassifier, TIFAGCLClassifier, make_block_graph

data = make_block_graph(600, 3, class_separation=1.2, random_state=0)
graph, y = data.graph, data.target
labeled = np.arange(0, 600, 10)
unlabeled = np.setdiff1d(np.arange(600), labeled)


def some_wrong(share, rng):
    told = y[labeled].copy()
    wrong = rng.random(len(told)) < share
    told[wrong] = (told[wrong] + rng.integers(1, 3, wrong.sum())) % 3
    return told


# %%
# Fit
# ---
# Two draws of the noise at each share.

models = {
    "features alone (MLP)": GNNClassifier("mlp", max_iter=60, random_state=0),
    "GCN": GNNClassifier(max_iter=60, random_state=0),
    "TIFA-GCL": TIFAGCLClassifier(max_iter=60, pairing=None, random_state=0),
}
shares = [0.0, 0.2, 0.4]
accuracy = {name: np.zeros((len(shares), 2)) for name in models}
for i, share in enumerate(shares):
    for draw in range(2):
        told = some_wrong(share, np.random.default_rng(draw))
        for name, model in models.items():
            model.fit(graph[labeled], told)
            accuracy[name][i, draw] = model.score(graph[unlabeled], y[unlabeled])

fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, values in accuracy.items():
    ax.errorbar(shares, values.mean(axis=1), values.std(axis=1), marker="o", label=name)
ax.set(xlabel="share of wrong labels", ylabel="accuracy", xticks=shares)
ax.legend()
plt.show()

# %%
# Which labels to look at again
# -----------------------------
# Fitted out of fold, a model disagrees most with labels that are likely wrong.

from sklearn.model_selection import cross_val_predict

told = some_wrong(0.2, np.random.default_rng(0))
p = cross_val_predict(
    models["TIFA-GCL"], graph[labeled], told, cv=5, method="predict_proba"
)
doubtful = p[np.arange(len(told)), told].argsort()[:10]
wrong = told[doubtful] != y[labeled][doubtful]
print(f"{wrong.sum()} of the 10 most doubtful labels are wrong, of all 60 ", end="")
print(np.sum(told != y[labeled]))
