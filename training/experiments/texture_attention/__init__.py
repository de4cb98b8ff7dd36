"""Attention in texture space: convolutions that the question makes, in place of attention between tokens.

    python -m training.experiments.texture_attention --data DATA --cache CACHE   after judges.collage

What: a block between vision features and a reader of the scenes of judges/collage (`blocks.py`): depthwise convolutions
of the grid whose kernels the question's vector makes, O(n), beside softmax attention of tokens with each other, O(n^2),
and beside blocks that lack one half of the idea. Each learns the same steps together with the reader (`learn.py`), of
which no block at all is one; times by the number of cells (`speed.py`).
Why: the seed documents ask whether attention in the texture avoids O(n^2), and what that costs in quality.
Result: at 1,024 cells a third of attention's time, at 4,096 .15, exponent .85 for 1.3; at 64 cells .86. In 250
steps no block answers more than none (.37 to .40 for .49, three seeds): out. All: docs/log.md.
"""
