"""Encoders: image -> dense features in a space that text vectors share."""

from foveate.encoders.load import load_encoder as load_encoder
from foveate.encoders.protocol import Calibration as Calibration
from foveate.encoders.protocol import DenseFeatures as DenseFeatures
from foveate.encoders.protocol import Encoder as Encoder
