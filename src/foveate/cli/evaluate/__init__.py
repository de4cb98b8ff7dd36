"""`foveate evaluate`: how good and how fast is it on your own data? docs/evaluate.md has the folders.

command.py has the five commands; relevance.py, compression.py, gaze.py, search.py and vlm.py measure, and with
--policies policies.py and answers.py: each `measure` returns a report, a dict with "title",
"rows" with the "cells" of a table, and what is needed to repeat it.
"""
