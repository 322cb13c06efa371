"""
Digits with a hundred labels
============================

**Problem.** 1,797 small images of digits, and someone has named a hundred of them.

**Method.** Tie each image to the images most like it, and let the labels and a graph
network tell the rest.

**Comparison.** A classifier of single images, label propagation, a graph network, and
the same with contrast.
"""

# %%
# The graph
# ---------
# ``load_digits_graph`` has made it of the images' pixels: each is tied to its nearest
# neighbours.

import matplotlib.pyplot as plt
import numpy as np

from sktifa import load_digits_graph

data = load_digits_graph()
graph, y = data.graph, data.target
labeled = np.arange(0, len(y), 18)
unlabeled = np.setdiff1d(np.arange(len(y)), labeled)
print(graph)

# %%
# Four ways
# ---------
# The first sees pixels alone, the second edges alone, the others both.

from sklearn.linear_model import LogisticRegression

from sktifa import GNNClassifier, LabelPropagationTIG, TIFAGCLClassifier

pixels = np.asarray(graph.features)
accuracy = {}

single = LogisticRegression(max_iter=2000).fit(pixels[labeled], y[labeled])
accuracy["logistic regression"] = single.score(pixels[unlabeled], y[unlabeled])

spread = LabelPropagationTIG().fit(graph[labeled], y[labeled])
arrives = spread.transform(graph[unlabeled])[:, : len(spread.classes_)]
told = spread.classes_[arrives.argmax(axis=1)]
accuracy["label propagation"] = np.mean(told == y[unlabeled])

for name, model in (
    ("GCN", GNNClassifier(max_iter=150, random_state=0)),
    ("TIFA-GCL", TIFAGCLClassifier(max_iter=150, random_state=0)),
):
    model.fit(graph[labeled], y[labeled])
    accuracy[name] = model.score(graph[unlabeled], y[unlabeled])

fig, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
bars = ax.barh(list(accuracy), list(accuracy.values()))
ax.bar_label(bars, fmt="%.3f", padding=3)
ax.set(xlim=(0.6, 1), xlabel="accuracy on the unlabelled images")
ax.invert_yaxis()
plt.show()

# %%
# All that use the edges are ahead of what looks at one image at a time. Between
# themselves they differ little: on a graph of nearest neighbours the neighbours say
# nearly all. Where edges and features tell different things, networks are ahead.
#
# The images it is unsure of
# --------------------------

p = model.predict_proba(graph[unlabeled])
unsure = unlabeled[p.max(axis=1).argsort()[:10]]
said = model.predict(graph[unsure])

fig, axes = plt.subplots(1, 10, figsize=(9, 1.4), layout="constrained")
for ax, node, digit in zip(axes, unsure, said, strict=True):
    ax.imshow(pixels[node].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"{digit} ({y[node]})", fontsize=9)
    ax.set_axis_off()
fig.suptitle("predicted (true)", fontsize=9)
plt.show()
