"""A harder small LLaVA: twelve to thirty cut-out things on a photograph, many alike, with parts and relations.

    python -m training.judges.collage --data DATA --cache CACHE [--out FOLDER]

What: does the question still find the tokens that an answer needs, where diversity alone cannot see everything? Scenes
of real cut-outs (`cutouts`, `scenes`), files (`features`), a tower of nano's features and a small convolutional network
(`tower`), a projector and a small Llama (`model`, `train`), every way to select at 3 to 100 % of 256 tokens
(`evaluate`). The selector is foveate's own: nano's texture of the same picture, `score`, `allocate`; no ground truth
reaches it. Each step goes on where it was killed.
"""
