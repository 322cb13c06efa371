"""
Nodes that come later
=====================

**Problem.** A model is trained today, and tomorrow's graph has new nodes.

**Method.** ``setting="inductive"``: training sees today's nodes and the edges between
them. Prediction runs the trained encoder on tomorrow's graph.

**Comparison.** The same model that could see all nodes from the start, and one that
predicts for new nodes without their edges.
"""

# %%
# Today and tomorrow
# ------------------

import matplotlib.pyplot as plt
import numpy as np

from sktifa import Graph, TIFAGCLClassifier, make_block_graph

data = make_block_graph(1200, 4, average_degree=8, random_state=0)
tomorrow, y = data.graph, data.target
today, new = np.arange(800), np.arange(800, 1200)
partly = np.full(1200, -1)
partly[:800:10] = y[:800:10]

# %%
# Train
# -----
# The inductive model is given today's nodes and sees nothing else of the graph. The
# transductive one sees the features and edges of all nodes, and the same labels.

accuracy = {}
inductive = TIFAGCLClassifier(
    "sage", setting="inductive", max_iter=150, random_state=0
).fit(tomorrow[today], partly[today])
accuracy["new nodes, inductive"] = inductive.score(tomorrow[new], y[new])

transductive = TIFAGCLClassifier("sage", max_iter=150, random_state=0)
transductive.fit(tomorrow, partly)
accuracy["new nodes, seen from the start"] = transductive.score(tomorrow[new], y[new])

# %%
# A model that is handed the graph of today's nodes alone is the same one, and predicts
# for any graph with the same features. Without their edges, new nodes are classified by
# their features only:

features = np.asarray(tomorrow.features)[new]
alone = Graph(np.zeros((400, 400)), features)
accuracy["new nodes, their edges unknown"] = inductive.score(alone, y[new])

fig, ax = plt.subplots(figsize=(6, 2), layout="constrained")
bars = ax.barh(list(accuracy), list(accuracy.values()))
ax.bar_label(bars, fmt="%.2f", padding=3)
ax.set(xlim=(0, 1), xlabel="accuracy")
ax.invert_yaxis()
plt.show()

# %%
# What helps are the new nodes' edges to nodes known before. Having seen them in
# training adds little.
