"""
A graph where this is the wrong tool
====================================

**Problem.** Edges that join *unlike* nodes: buyers and sellers, words and the words
that follow them. Labels spread to the wrong nodes.

**Method.** Look before you train: ``diagnose`` asks how often edges between labelled
nodes join one class, and what propagation and features tell, each alone.

**Comparison.** Two graphs with the same features, one of each kind.
"""

# %%
# Two graphs
# ----------

import matplotlib.pyplot as plt
import numpy as np

from sktifa import make_block_graph

kinds = {
    "edges join like nodes": 0.8,
    "edges join unlike nodes": 0.1,
}
graphs = {
    name: make_block_graph(600, 3, homophily=h, random_state=0)
    for name, h in kinds.items()
}
labeled = np.arange(0, 600, 4)
unlabeled = np.setdiff1d(np.arange(600), labeled)

# %%
# Look first
# ----------
# All of this needs labelled nodes only.

from sktifa import diagnose

for name, data in graphs.items():
    report = diagnose(data.graph[labeled], data.target[labeled])
    print(f"{name}: the graph helps: {report.graph_helps}")

# %%
# The whole report on the second:

print(report)

# %%
# Train anyway
# ------------
# ``fit`` warns of the second graph too, in fewer words.

import warnings

from sktifa import GNNClassifier, TIFAGCLClassifier

warnings.filterwarnings("ignore", "The graph does not seem to help")

models = {
    "features alone (MLP)": GNNClassifier("mlp", max_iter=100, random_state=0),
    "GCN": GNNClassifier(max_iter=100, random_state=0),
    "TIFA-GCL": TIFAGCLClassifier(max_iter=100, random_state=0),
}
fig, axes = plt.subplots(1, 2, figsize=(9, 2.4), layout="constrained", sharey=True)
for ax, (name, data) in zip(axes, graphs.items(), strict=True):
    graph, y = data.graph, data.target
    accuracy = [
        model.fit(graph[labeled], y[labeled]).score(graph[unlabeled], y[unlabeled])
        for model in models.values()
    ]
    bars = ax.barh(list(models), accuracy)
    ax.bar_label(bars, fmt="%.2f", padding=3)
    ax.set(title=name, xlim=(0, 1.1), xlabel="accuracy")
axes[0].invert_yaxis()
plt.show()

# %%
# Where edges join unlike nodes, a classifier of features alone is the better one, and
# the look beforehand said so.
