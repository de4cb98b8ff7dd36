"""Measurements: every number of README and docs comes from here. `python -m benchmarks --help` lists them.

Each name is a table: it is printed, and the last line is one JSON object with versions and machine (a terminal gets
lengths of its long lists). Without a name: all tables of docs/performance.md, each in a process of its own, and a file
of results (suite.py). What a user runs on his own data is `foveate evaluate`. To begin with: `ratios`, `query`, and
`reuse --encoders nano`.

A file has `measure(...) -> report` and `command(...)`, its options; common.py has what they share. A report is a plain
dict: "title", "rows" and what is needed to repeat it. The machines are shared, so look at ratios within a run.
"""
