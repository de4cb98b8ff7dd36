"""What differs from one model to the next: how its tokens lie in an image, how features and positions are asked for.

Begin with family.py, the adapter. layouts.py: where tokens lie, by rules. where_shown.py: where pictures were cut out.
pixels.py: what each token shows.
token_layout.py: grids of tokens, and maps on them. features.py: rows of features. sparse.py: kept tokens alone.
"""
