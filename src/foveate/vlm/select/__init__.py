"""Which cells a model gets."""
