"""Graphs and features as tensors, the products of both, and the kernels behind them."""
