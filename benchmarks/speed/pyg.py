"""PyG's plain GCN as its users write it, which ours are measured against."""

from __future__ import annotations

from copy import copy

import numpy as np
import torch
from sklearn.utils import Bunch
from torch.nn import functional
from torch_geometric.nn import GCNConv


class PlainGCN(torch.nn.Module):
    """Two layers of PyG's GCNConv, hidden 64, dropout 0.5."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.first = GCNConv(n_features, 64)
        self.second = GCNConv(64, n_classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = functional.dropout(x, 0.5, self.training)
        x = torch.relu(self.first(x, edge_index))
        x = functional.dropout(x, 0.5, self.training)
        return self.second(x, edge_index)


class PlainScript:
    """A training script: dense features, Adam, the best model by validation."""

    def __init__(
        self, data: Bunch, train: np.ndarray, val: np.ndarray, device: str
    ) -> None:
        self._data = data.graph.to_pyg(data.target)
        # Unlabelled nodes count among the training nodes, for scikit-learn's sake.
        self._nodes = train[data.target[train] >= 0], val
        self._n_classes = int(data.target.max()) + 1
        self._device = device
        self._start()

    def _start(self) -> None:
        self._here = copy(self._data).to(self._device)
        self._train, self._val = (
            torch.from_numpy(nodes).to(self._device) for nodes in self._nodes
        )
        self._model = PlainGCN(self._here.num_features, self._n_classes)
        self._model.to(self._device)
        self._optimizer = torch.optim.Adam(
            self._model.parameters(), lr=0.01, weight_decay=0.005
        )

    def step(self) -> None:
        """Make one update."""
        self._model.train()
        self._optimizer.zero_grad()
        out = self._model(self._here.x, self._here.edge_index)
        functional.cross_entropy(out[self._train], self._here.y[self._train]).backward()
        self._optimizer.step()

    def validate(self) -> float:
        """Return the cross-entropy on the validation nodes."""
        self._model.eval()
        with torch.no_grad():
            out = self._model(self._here.x, self._here.edge_index)
            return functional.cross_entropy(
                out[self._val], self._here.y[self._val]
            ).item()

    def fit_predict(self, n_epochs: int) -> np.ndarray:
        """Train anew, keep the best model, and return the class of every node."""
        self._start()
        least, best = np.inf, self._model.state_dict()
        for _ in range(n_epochs):
            self.step()
            if (loss := self.validate()) < least:
                least = loss
                best = {
                    name: value.clone()
                    for name, value in self._model.state_dict().items()
                }
        self._model.load_state_dict(best)
        self._model.eval()
        with torch.no_grad():
            out = self._model(self._here.x, self._here.edge_index)
        return out.argmax(1).cpu().numpy()
