"""Fitting a basis to many images: one that all of them share, so that their coordinates may be compared.

gather.py: features of a folder into moments (moments.py, one floor below), resumable, on any engine ·
fitted.py: the basis with what it came from, and its file · check.py, bound.py: what it keeps, by rank · page.py: that
as a page.
"""
