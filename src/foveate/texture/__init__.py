"""The texture: an encoded image as named channels, and what belongs to that value.

* `texture`: the value. Begin here.
* `sampling`: one channel at any position and level; channels that follow from coordinates or pixels.
* `basis`: compression of the embedding that keeps scores, and the sums from which a basis is fitted.
* `batch`: several textures as one array. `torch`: a texture as tensors on a device.
* `cache`: textures in memory. `file`: its bytes (docs/format.md).
"""

from foveate.texture.batch import stack as stack
from foveate.texture.texture import EncoderStamp as EncoderStamp
from foveate.texture.texture import Texture as Texture
