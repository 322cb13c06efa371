"""
A table turned into a graph
===========================

**Problem.** A table of measurements, thirty labels, no edges.

**Method.** Tie each row to the rows most like it. Scale the columns first: otherwise
the one with the largest unit decides alone who is near.

**Comparison.** A classifier of rows, scikit-learn's ``LabelSpreading``, and a graph
classifier that is given the rows as they are, on several draws of the labels.
"""

# %%
# Scaled and unscaled neighbours
# ------------------------------
# 569 tumours, 30 measurements of each, from areas in the thousands to shares below
# 0.1.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from sktifa import Graph

X, y = load_breast_cancer(return_X_y=True)
scaled = StandardScaler().fit_transform(X)
for name, rows in (("as given", X), ("scaled", scaled)):
    edges = Graph.from_features(rows, n_neighbors=10).adjacency.tocoo()
    alike = np.mean(y[edges.row] == y[edges.col])
    print(f"{name}: {100 * alike:.0f} % of the edges join rows of one class")

# %%
# Classify
# --------
# A pipeline as any other: a plain matrix may be given to every classifier of sktifa.

from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.semi_supervised import LabelSpreading

from sktifa import LabeledNodeShuffleSplit, TIFAGCLClassifier

models = {
    "random forest": RandomForestClassifier(random_state=0),
    "LabelSpreading": make_pipeline(
        StandardScaler(), LabelSpreading("knn", n_neighbors=10)
    ),
    "TIFA-GCL": make_pipeline(
        StandardScaler(),
        TIFAGCLClassifier(max_iter=100, n_neighbors=10, random_state=0),
    ),
}
splits = LabeledNodeShuffleSplit(5, train_per_class=15, val_per_class=0, random_state=0)
scores = {name: [] for name in models}
for labeled, unlabeled in splits.split(X, y):
    partly = np.full(len(y), -1)
    partly[labeled] = y[labeled]
    for name, model in models.items():
        if name == "random forest":
            model.fit(X[labeled], y[labeled])
        else:
            model.fit(X, partly)
        scores[name].append(model.score(X[unlabeled], y[unlabeled]))

fig, ax = plt.subplots(figsize=(6, 2.4), layout="constrained")
ax.boxplot(list(scores.values()), orientation="horizontal", tick_labels=list(scores))
ax.set(xlabel="accuracy over 5 draws of 15 labels a class")
plt.show()

# %%
# Rows that come later
# --------------------
# New rows are tied to their nearest training rows. What is predicted for one doesn't
# depend on which others come with it.

model = models["TIFA-GCL"]
one, all_ = model.predict(X[:1]), model.predict(X)
assert one[0] == all_[0]
