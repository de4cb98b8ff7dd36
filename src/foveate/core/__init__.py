"""What every other room uses. Nothing here knows textures, encoders or questions.

* `grid`: cells over an image, and the coordinate convention. `layout`: the table of channels. Begin with these two.
* `errors`: every failure a person can cause. `checks`: of arguments. `options`: shared keywords. `gone`: what went.
* `image`: any source of an image -> upright RGB uint8. `files`: files written whole or not at all.
* `threads`: work in threads. `devices`: torch's devices. `readonly`, `arrays`, `display`: what values are made of.
"""
