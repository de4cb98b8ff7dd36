"""Which visual tokens of an image a model gets: how many (budgets.py), which (choose.py), which regions (crops.py)."""
