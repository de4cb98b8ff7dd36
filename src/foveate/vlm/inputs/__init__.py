"""Tensors of a call: ids of the prompt (prompt.py), kept tokens and positions (batch.py), features (features.py)."""
