"""A texture in the place of a vision tower: trained on transformers' own Trainer.

* model.py: texture rows, the projector, its file, and `encode_texture`, for `foveate.vlm`.
* lessons.py: questions with answers, laid out once as texture rows, ids and positions.
* train.py: two stages: the projector alone, then LoRA adapters of the language model as well.
* demo.py: does it learn? A small language model, generated scenes, a table.

    from training.judges.projector.train import accuracy, train        # in a clone, with the extra [train]
"""
