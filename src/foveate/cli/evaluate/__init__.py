"""`foveate evaluate`: how good and how fast is it on your own data? Begin with command.py.

    command.py      the commands and what they print
    relevance.py    is the heat on the thing? against COCO masks
    open.py         is it on what an open question asks for? against regions and label masks
    compression.py  do compressed maps equal full ones?
    search.py       is a store's short list good enough? needs no labels
    vlm.py          is a model faster with fewer visual tokens?
    agreement.py    a map with a mask, as numbers; intervals
    coco.py         reading a COCO-style folder
    questions.py    reading open questions (queries.json), and stuff from label masks
    cases.py        the best, worst and random cases as pictures
    circumstances.py  versions and machine, for every report

A report is a plain dict: "title", "rows" with the "cells" of a table, and what is needed to repeat it. benchmarks/ uses
the same parts for this project's own numbers.
"""
