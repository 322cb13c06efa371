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
# A thousand nodes, eight labels in each of four classes (stars).

import matplotlib.pyplot as plt
import numpy as np

from sktifa import LabelPropagationTIG, make_block_graph
from sktifa.displays import GainMapDisplay

data = make_block_graph(
    1000, 4, average_degree=5, homophily=0.75, class_separation=1.2, random_state=0
)
graph, y = data.graph, data.target
rng = np.random.default_rng(0)
labeled = np.concatenate(
    [rng.choice(np.flatnonzero(y == c), 8, replace=False) for c in range(4)]
)
test = np.setdiff1d(np.arange(1000), labeled)

spread = LabelPropagationTIG().fit(graph[labeled], y[labeled])
GainMapDisplay.from_estimator(spread, graph, labeled=labeled).plot()
plt.show()

# %%
# Right and wrong
# ---------------
# Each dot is a node. The further out, the less arrives, and the less clearly.

from sktifa import GNNClassifier, TIFAGCLClassifier
from sktifa.displays import InformationPlaneDisplay

models = {
    "GCN": GNNClassifier(max_iter=150, random_state=0),
    "TIFA-GCL": TIFAGCLClassifier(max_iter=150, random_state=0),
}
for model in models.values():
    model.fit(graph[labeled], y[labeled])

InformationPlaneDisplay.from_estimator(models["GCN"], graph, y, labeled=labeled).plot()
plt.show()

# %%
# Accuracy by what arrives
# ------------------------
# Five bins of equal size, from the nodes that least arrives at to those that most does.

from sktifa.displays import GainBinsDisplay

GainBinsDisplay.from_estimator(models, graph[test], y[test]).plot()
plt.show()

# %%
# The gain says beforehand where a model will be wrong. Label the next nodes there.
