"""How many channels are enough: leave one out, add one at a time, and the layouts of 13 to 64 in between.

    python -m training.experiments.channel_budget --data DATA --cache CACHE [--out FOLDER]

What: every question is asked through `foveate.score` of a texture that holds only some channels (quality.py), and cells
are kept by `foveate.allocate`. One channel left out of all; then forwards, from nothing, whatever adds most a channel:
the next numbers of the embedding or a plane; then published layouts, and more of everything. Planes that the default
does not read are judged by a linear scorer over the question's map and them (linear.py). Bytes and times beside it.

Why: "16-24 channels: sweet spot for most tasks; 64+ channels: probably wasteful", say the seed documents.

Result: 32 numbers of the embedding and the segments are within half a percent of the best, and with the colours of the
image they are the layout "lean" (36 channels). 16 to 24 channels lose a point of precision or two, more than 33 bring
.003. No other plane adds anything to a question about a thing, through the default or through a linear scorer.

Choices are made on held-out training photographs; dev/coco128 and dev/open are judged once. It goes on where it was
killed: what was judged is kept in CACHE/channel_budget.
"""
