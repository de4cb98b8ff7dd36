"""The question on a device: score, exact top-K and gather, for any batch of images and questions. Needs [torch].

    there = texture.to("cuda")                                    # texture/tensors.py
    kept = foveate.allocate(foveate.score(there, "a dog"), 273)   # NumPy's cells, as tensors
    found = ask(stack(textures, "cuda"), vectors, 273)            # 132 images and many questions, in one launch

Importing this room imports no torch; its modules do.

* fused: `ask`, score N x r, exact top-K and gather of rows, in one launch; `kernel` is it in Triton,
  `selection` in plain torch (everywhere, the CPU included); `ask_reference` in NumPy says what is right.
* scoring: `foveate.score` on tensors. keeping: `foveate.allocate` on tensors. results: what they return.
* replay: the same as one captured CUDA graph for a batch that is asked again and again.
"""
