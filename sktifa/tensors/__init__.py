"""Graphs and features as tensors, the products of both, and the kernels behind them."""

import warnings

# PyTorch says these of every CSR tensor once a process.
for _message in (
    "Sparse CSR tensor support is in beta",
    "Sparse invariant checks are implicitly disabled",
):
    warnings.filterwarnings("ignore", message=_message)
