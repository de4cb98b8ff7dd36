"""Fitting a basis to many images: one that all of them share, so that their coordinates may be compared.

moments.py: sums that add up over images, parts and machines · gather.py: features of a folder into them, resumable ·
fitted.py: the basis with what it came from, and its file · check.py: what it keeps, by rank · page.py: that as a page.
"""
