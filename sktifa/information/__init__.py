"""How much annotated information reaches each node: propagation, gain, weights."""
