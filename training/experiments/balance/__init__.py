"""A learned balance of the three tensions, by masks of things and by a language model's answers.

    python -m training.experiments.balance --data DATA --cache CACHE   after judges.collage

What: three forms of a balance of information, perspective and participation (`forms.py`), learned through a soft top-K
by the overlap of kept cells with masks, of photographs that nano's head has not seen and of scenes of judges/collage,
and by the answers of a reader of those scenes (`reader.py`), for which each cell counts as the soft top-K has it.
Why: the seed documents fix the formula and say that its weights should be learned; the default here is the question
alone, because both published forms lose against it.
Result: learned by masks, weights end at the question alone (.998 participation) and are no better on either set. By
answers they gain where the answer is not what is named (up to +.07 of right answers at 25 %), nothing where it is, and
lose on both sets of photographs: out. All: docs/log.md.
"""
