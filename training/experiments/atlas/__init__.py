"""Atlas batches: many textures in one array, scored in one product. Do they win on a CPU?

    python -m training.experiments.atlas --data DATA --cache CACHE

Ragged rows with offsets, pages of 256 cells in a run, tiles of 16 x 16 with a page table (`pages.py`, NumPy and torch,
gradients checked), against a loop over textures. 1, 8, 64 and 256 photographs of mixed grids, each with its own basis,
or one for all; 1 and 16 questions; minutes.

Result: scores are the same to the last bit. 1.2 times as fast as a loop over 256 textures with one question, no
faster with 16: out on a CPU.
"""
