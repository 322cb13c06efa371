"""Accuracy against the paper and its peers."""
