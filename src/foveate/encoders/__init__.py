"""Encoders: image -> dense features in a space that text vectors share. Begin with protocol.py.

To add an encoder, pass an object with the members of `Encoder`: `foveate.encode(image, encoder=mine)`. To add a family
of checkpoints, subclass `HubEncoder` and list it in `FAMILIES` of load.py; CONTRIBUTING.md has the steps.

* protocol.py    what an encoder must return, and the checks of that
* load.py        encoders by name, and the encoder that made a texture
* nano.py        the built-in encoder: onnxruntime, offline; its files lie in assets/
* names.py       nano's text side: a text as a vector over names
* hub.py         what encoders from the Hub share: images, texts, loading (extra `[torch]`)
* clip.py, siglip.py, tips.py    their families: dense heads and tokenisation
* windows.py     images much larger than the network was trained on
* checkpoint.py  checkpoints in transformers format; depth and SAM models use it too
"""

from foveate.encoders.hub import HubEncoder as HubEncoder
from foveate.encoders.load import load_encoder as load_encoder
from foveate.encoders.protocol import Calibration as Calibration
from foveate.encoders.protocol import DenseFeatures as DenseFeatures
from foveate.encoders.protocol import Encoder as Encoder
