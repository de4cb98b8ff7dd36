"""What differs from one family of models to the next. To add one, read family.py, then llava.py.

* token_layout.py: where the visual tokens of an image lie in it; maps and masks projected onto them.
* family.py: the base class `Family`, the features of images, and what most families share.
* llava.py: LLaVA 1.5. anyres.py: families that cut large images into tiles. qwen.py: the Qwen-VLs, and video.
"""
