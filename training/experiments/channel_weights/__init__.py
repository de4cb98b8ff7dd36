"""Weights of channels from the question's words: a small net against the table of foveate.language.cues.

**What.** The question's vector -> 16 -> a weight for each channel, few of them not 0; the score is the question's map
as log(p / (1 - p)) with a weight of its own, and the weighted channels. Learned with the top-K of `scorer`.

**Why.** The documents let a question choose its channels by learned attention; the package has a table of words.

**Command.** `python -m training.experiments.channel_weights --data DATA --cache CACHE`.

**Result.** Precision +.015 on held-out photographs of the kinds it learned from; -.011 (-.017 to -.005) on dev/coco128,
-.002 (-.009 to +.004) on dev/open. Out: nothing is gained beyond its own names and their form. The table
of words is silent where no word of it is said, and wins where one is. All: docs/log.md.
"""
