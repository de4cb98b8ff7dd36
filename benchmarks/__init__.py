"""Measurements: every number in the README comes from one of these, and each prints its table and one line of JSON.

* `query`: times of the main path, and sizes. Medians; the machines are shared, so look at ratios within a run.
* `relevance`: is the heat on the thing? Against COCO-style masks, beside honest baselines.
* `compression`: do compressed maps equal full ones? Beside the way of the seed documents.
* `video`: does carrying features along the motion cost less than encoding every frame, and what does it lose?
* `store`: times of reading and searching, and the bytes that a question reads.
* `basis`: seconds and memory of fitting a basis to a stream of features.
* `index`: rates of indexing, by threads and by Ray's workers, beside the tower alone.
* `search`: is the store's short list good enough for these images? Against ranking all of them exactly; no labels.
* `vlm`: is a vision-language model faster with fewer visual tokens? Selection included.

A report is a plain dict: "title", "rows" and what is needed to repeat it.
"""
