"""What every other room uses. Nothing here knows textures, encoders or questions.

* `grid`: cells over an image, and the coordinate convention. `layout`: the table of channels. Begin with these two.
* `errors`: every failure a person can cause. `checks`: checkers of arguments. `options`: keywords that are shared.
* `image`: any source of an image -> upright RGB uint8. `files`: files written whole or not at all.
* `threads`: work in threads, and several images in the place of one. `devices`: torch's devices, and their errors.
* `readonly`: immutable values. `display`: values that show themselves. `arrays`: values that are arrays; fast float16.
* `gone`: names and keywords that went in this release.
"""
