"""Image -> planes: the channels that need no encoder. Each file holds one family, each function is pure.

* `visual`: edge_on, edge_off, high_pass, low_pass, edge_distance, on a quarter of the image's resolution.
* `saliency`: where an image is unlike itself (spectral residual), on the cell grid.

Position (x, y, eccentricity) is computed in `texture.py` when it is read; the embedding comes from `encoders/` and
`basis.py`. Channels that are declared in `layout.py` and not built here answer with their neutral value.
"""
