"""Measurements: every number of README and docs comes from here. `python -m benchmarks NAME` prints a table and, as
the last line, one JSON object with versions and machine (a terminal gets lengths of its long lists). What a user runs
on his own data is `foveate evaluate`.
Without a name: all tables of docs/performance.md, each in a process of its own, and a file of results (suite.py).

To begin with: `ratios`, `query`, and `reuse --encoders nano`.

The whole, and what reads it

    all               the same with options: every table, each in a process of its own, and a file of results
    compare           two files of results: what became slower?
    claims            the documents' claims beside a file of results
    ratios            quick ways beside their slow twins, as `make test` asks

Speed: docs/performance.md, in its order

    reuse             an image encoded once, against its crops
    tasks             the documents' tasks from end to end
    query             times of the main path, sizes of a texture
    question          score, choose and gather beside FAISS and torch
    service           encode in a process that sets nothing: threads, several images, memory
    channels          what channels, scorers and policies cost
    textures          planes, mip levels, gathers: times and bytes
    basis             seconds and memory of fitting a basis
    compression       ways to compress features, beside each other
    frames            frames a second of clips, beside encoding every frame
    vlm               is a model faster with fewer visual tokens? random weights of real sizes
    serving           a server of such models under load, by budget; what arithmetic expects of fewer tokens
    store             reading and searching, bytes that a question reads
    index             images a second of indexing, beside the encoder alone
    quality           what quicker ways cost
    gpu               the question on a GPU, its kernel and plain torch beside NumPy
    hardware_texture  cache lines of six layouts, counted

Do maps show what is asked for?

    fusion            does anything beside the question help? against COCO-style masks
    refine            does looking again, closer, help?
    boxes             boxes of maps against true boxes
    objects           borders of segments and of objects against labels of pixels
    weights           do channels that a question's words speak of help its map?
    presets           what does each preset cost and gain?
    open              open questions: parts, stuff, attributes, and what is not there
    failures          the worst of them, and what is called found though it is not there
    when              when does it pay, and when not?
    zoom              are small things found in large images, at what cost, and does it say so when one is not there?

Writing in images

    text              is the text mask where the writing is?
    readers           how well and how fast do readers read? Answers whose place is known
    reading           is the answer to a question among the cells that are kept? Pages, forms, receipts, signs
    reading_vlm       do a model's tokens hold the answer's words whole? Reading beside nano alone and an even grid
    writing           is a page found by what is written on it?

Video, chat, the viewer

    video             does propagating features cost less, and what does it lose?
    video_words       are words still where they are, two seconds after they were read? A drawn sign
    chat              times of a round of a dialogue, without generation
    view              is the viewer quick? in a real browser

Each is a file with `measure(...) -> report` and `command(...)`, its options; common.py has what they share. A report is
a plain dict: "title", "rows" and what is needed to repeat it. The machines are shared, so look at ratios within a run.
"""
