"""What TIFA adds to a training step: weights, perturbation, pairs and their loss."""
