"""Tensors of a call: ids, positions, features."""
