"""`foveate evaluate`: how good and how fast is it on your own data? docs/evaluate.md has the folders.

    command.py      the four commands and what they print
    relevance.py    do maps lie on the things asked for? against COCO masks
    compression.py  what do compressed maps lose?
    search.py       does a store's search find the best images? needs no labels
    vlm.py          is a model faster with fewer visual tokens? needs no labels
    agreement.py    a map with a mask, as numbers; intervals
    coco.py         reading a COCO-style folder

A report is a plain dict: "title", "rows" with the "cells" of a table, and what is needed to repeat it.
"""
