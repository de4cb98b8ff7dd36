"""The texture: an image as named channels, each at its native resolution; its sampling, its compression, its file."""

from foveate.texture.texture import EncoderStamp as EncoderStamp
from foveate.texture.texture import Texture as Texture
