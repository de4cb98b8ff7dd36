"""What every other room uses. Nothing here knows textures, encoders or questions.

* `errors`: every failure a person can cause, one class each, with three parts (what came, what was expected, the fix).
* `checks`: six checkers of arguments.
* `grid`: cells over an image, and the one coordinate convention. `layout`: the table of channels. Begin with these two.
* `image`: any source of an image -> upright RGB uint8.
* `files`: files written whole or not at all, and never in the place of a file of another kind.
* `readonly`: immutable values.
* `threads`, `several`: a function on many items in threads; several images in the place of one.
* `display`, `arrays`: values that show themselves, and that are arrays to NumPy and torch.
"""
