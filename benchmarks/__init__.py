"""Measurements: every number of README and docs comes from here. `python -m benchmarks NAME` prints a table and, as
the last line, one JSON object with versions and machine. What a user runs on his own data is `foveate evaluate`.
Without a name: all tables of docs/performance.md, each in a process of its own, and a file of results (suite.py).

    all          the same with options; compare, two files; claims, the documents' beside a file; ratios, of `make test`
    reuse        an image encoded once against its crops; tasks, the documents' tasks from end to end
    quality      what quicker ways cost
    query        times of the main path, sizes of a texture
    channels     what channels, scorers and policies cost
    textures     each channel, mips, memory, gathers: beside the documents' figures and a copy of as many bytes
    question     one question's arithmetic over cells, budgets and batches, beside FAISS and torch
    fusion       does anything beside the question help? against COCO-style masks
    refine       does looking again, closer, help?
    text         is the text mask where the writing is?
    budget       does a budget keep what was found?
    video        does propagating features cost less than encoding every frame, and what does it lose?
    store        times of reading and searching, bytes that a question reads
    index        images a second of indexing, beside the encoder alone
    basis        seconds and memory of fitting a basis
    view         is the viewer quick? in a real browser
    vlm          is a model faster with fewer visual tokens? with random weights of real sizes

Each is a file with `measure(...) -> report` and `command(...)`, its options; common.py has what they share. A report is
a plain dict: "title", "rows" and what is needed to repeat it. The machines are shared, so look at ratios within a run.
"""
