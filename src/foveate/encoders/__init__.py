"""Encoders: image -> dense features in a space that text vectors share. Begin with protocol.py.

An encoder has a name, a revision, a width D, prompt templates and a calibration, and two methods:
`encode_image(rgb, *, long_side=None) -> DenseFeatures` [h, w, D] and `encode_text(texts)` -> unit vectors [n, D].
Features are finite and at most 1 long; the score q.x is linear in them, and larger means more alike.

To add an encoder, pass such an object: `foveate.encode(image, encoder=mine)`; docs/encoders.md has a template. To add a
family of checkpoints, subclass `HubEncoder` as tips.py does, list it in `FAMILIES` of load.py, and test it as
tests/test_hub.py does; CONTRIBUTING.md has the steps.

* protocol.py    what an encoder owes its callers, and the checks of what it returns
* load.py        encoders by name, and the encoder that made a texture
* nano.py        the built-in encoder: onnxruntime, offline; its files lie in assets/
* hub.py         what encoders from the Hub share: images, texts, loading (extra `[torch]`)
* clip.py, siglip.py, tips.py    their families: dense heads and tokenisation
* windows.py     images much larger than the network was trained on
* checkpoint.py  checkpoints in transformers format: found, read whole, named; depth and SAM models use it too
"""

from foveate.encoders.hub import HubEncoder as HubEncoder
from foveate.encoders.load import load_encoder as load_encoder
from foveate.encoders.protocol import Calibration as Calibration
from foveate.encoders.protocol import DenseFeatures as DenseFeatures
from foveate.encoders.protocol import Encoder as Encoder
