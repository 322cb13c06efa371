"""
Who gets little information
===========================

**Problem.** A few labels, and nodes far from all of them. Which predictions can be
trusted?

**Method.** ``LabelPropagationTIG`` measures what arrives at each node: how much
(intensity) and how unanimously (clarity).

**Comparison.** Accuracy by what arrives, with and without contrast.
"""

# %%
# What arrives
# ------------

import matplotlib.pyplot as plt
import numpy as np

from sktifa import LabelPropagationTIG, make_block_graph

data = make_block_graph(
    1000, 4, average_degree=5, homophily=0.75, class_separation=1.2, random_state=0
)
graph, y = data.graph, data.target
rng = np.random.default_rng(0)
labeled = np.concatenate(
    [rng.choice(np.flatnonzero(y == c), 8, replace=False) for c in range(4)]
)
test = np.setdiff1d(np.arange(1000), labeled)

spread = LabelPropagationTIG(columns="raw").fit(graph[labeled], y[labeled])
arrives = spread.transform(graph)[:, :4]
intensity = arrives.max(axis=1)
share = np.divide(
    intensity, arrives.sum(axis=1), out=np.full(1000, 0.25), where=intensity > 0
)
right = arrives.argmax(axis=1) == y

fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for is_right, color, name in ((True, "C0", "right"), (False, "C3", "wrong")):
    nodes = test[right[test] == is_right]
    ax.plot(intensity[nodes] + 1e-5, share[nodes], ".", color=color, label=name)
ax.set(
    xscale="log",
    xlabel="how much arrives from the strongest class",
    ylabel="its share of all that arrives",
    title="label propagation is wrong where little arrives, or from all sides",
)
ax.legend()
plt.show()

# %%
# Accuracy by what arrives
# ------------------------
# Five bins of equal size, from the nodes that least arrives at to those that most does.

from sktifa import GNNClassifier, TIFAGCLClassifier
from sktifa.displays import GainBinsDisplay

predictions = {
    type(model).__name__: model.fit(graph[labeled], y[labeled]).predict(graph[test])
    for model in (
        GNNClassifier(max_iter=150, random_state=0),
        TIFAGCLClassifier(max_iter=150, random_state=0),
    )
}
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
GainBinsDisplay.from_predictions(spread.gain_[test], y[test], predictions).plot(ax=ax)
plt.show()

# %%
# The gain says beforehand where a model will be wrong. Label the next nodes there.
