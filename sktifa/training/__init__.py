"""Encoders, batches, and the loop that trains."""
