"""Which visual tokens of an image a model gets: how many (budgets.py), which (methods.py), which regions (crops.py)."""
