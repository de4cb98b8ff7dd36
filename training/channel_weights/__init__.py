"""Weights of channels from the question's words: a small net against the table of foveate.relevance.cues.

**What.** The words' vector (256 numbers) -> 16 -> a weight for each channel, few of them not 0; the score is the
question's map as log(p / (1 - p)) and the weighted channels. Learned with the top-K of `training/scorer`.

**Why.** The documents let a question choose its channels by learned attention; the package has a table of words.

**Command.** `python -m training.channel_weights --data DATA --cache CACHE`, after `training.examples`.

**Result.** To be measured.
"""
