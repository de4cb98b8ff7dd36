"""Image -> planes: one family a file, each function pure. Only `clusters` looks at an encoder's features, too.

* `visual`: edge_on, edge_off, high_pass, low_pass, edge_distance, on a quarter of the image's resolution.
* `saliency`: where an image is unlike itself (spectral residual), on the cell grid.
* `clusters`: segments on the cell grid (cluster_id, cluster_distance, cluster_size) and their borders.
* `masks`: segments from the masks of a Segment Anything model (`[torch]`).
* `text`: where there is writing (RapidOCR's detector, or strokes in rows).
* `depth`: Depth Anything V2 (`[torch]`); `geometry`: normals, occlusion edges and objects that follow from depth.
* `attention`: an eye tracker's fixations, a language model's attention, the dialogue so far, as planes.
* `build`: which of them an image gets, and how each was made.

Positions and gradients are computed when they are read (`derived.py`); the embedding comes from `encoders/` and
`basis.py`. Channels that are declared in `layout.py` and were not computed answer with their neutral value.
"""
