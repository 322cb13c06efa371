"""Graphs and features as tensors, the products of both, and the kernels behind them."""

import warnings

import torch

# PyTorch says of the first CSR tensor of a process that they are in beta: said here.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1))
