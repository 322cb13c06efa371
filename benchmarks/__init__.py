"""Benchmarks: each module prints what it measured and writes it to ``results/``."""
