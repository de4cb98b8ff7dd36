"""Channels: pixels -> planes, one family a file, each a pure function. Begin with build.py.

To add a channel: declare its name, range and neutral value in core/layout.py, write a function from pixels to its plane
(float32 on the cell grid or on a quarter of the image's resolution) here, and call it in build.py.

* visual.py: edges, frequencies, saliency; change between frames; torch.py: the same in batches, with gradients.
* text.py: where there is writing.
* segments.py: KMeans or any provider, sam.py one of them; objects.py: segments merged where they look alike.
* depth.py: Depth Anything V2; geometry.py: normals and occlusion, from depth and segments.
* attention.py: fixations, a language model's attention and the dialogue so far, as planes.
"""

from foveate.channels.attention import accumulate as accumulate
from foveate.channels.attention import make_attention_plane as make_attention_plane
from foveate.channels.attention import make_gaze_plane as make_gaze_plane
from foveate.channels.build import Channels as Channels
from foveate.channels.depth import DepthModel as DepthModel
from foveate.channels.depth import compute_depth_plane as compute_depth_plane
from foveate.channels.geometry import compute_normals as compute_normals
from foveate.channels.geometry import measure_occlusion as measure_occlusion
from foveate.channels.objects import find_objects as find_objects
from foveate.channels.sam import Sam as Sam
from foveate.channels.segments import KMeans as KMeans
from foveate.channels.segments import segment_image as segment_image
from foveate.channels.text import find_text_regions as find_text_regions
from foveate.core.gone import gone_from

__getattr__ = gone_from("foveate.channels")
