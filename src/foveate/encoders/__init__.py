"""Encoders: image -> dense features in a space that text vectors share. Begin with protocol.py.

To add an encoder, pass an object with the members of `Encoder`: `foveate.encode(image, encoder=mine)`. To add a family
of checkpoints, subclass `HubEncoder` and list it in `FAMILIES` of load.py; CONTRIBUTING.md has the steps.

nano.py is the built-in encoder, names.py its text side; hub.py what encoders from the Hub share, clip.py, siglip.py and
tips.py their families; specialists.py joins classifiers of anybody's to nano, classifiers.py runs their files;
windows.py sees images larger than the network was trained on; load.py finds encoders by name, checkpoint.py loads
checkpoints (depth and SAM models use it too).
"""

from foveate.encoders.hub import HubEncoder as HubEncoder
from foveate.encoders.load import load_encoder as load_encoder
from foveate.encoders.protocol import Calibration as Calibration
from foveate.encoders.protocol import DenseFeatures as DenseFeatures
from foveate.encoders.protocol import Encoder as Encoder
from foveate.encoders.specialists import Specialist as Specialist
