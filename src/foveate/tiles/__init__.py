"""Images too large to encode whole: which tiles does a question make worth encoding?"""
