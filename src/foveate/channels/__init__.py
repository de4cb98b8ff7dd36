"""Channels: pixels -> planes, one family a file, each a pure function. Begin with build.py.

To add a channel: declare its name, range and neutral value in core/layout.py, write a function from pixels to its plane
here, and call it in build.py. A plane is float32 on the cell grid or on a quarter of the image's resolution.

* build.py       which channels an image gets, and which method made each
* visual.py      edge_on, edge_off, high_pass, low_pass, edge_distance, saliency; change between frames
* segments.py    cluster_id, cluster_distance and cluster_size by KMeans or any provider
* objects.py     object_id and boundary: segments merged where they look alike
* sam.py         Segment Anything's masks as a provider of segments (extra `[torch]`)
* text.py        where there is writing: a small network, built in
* depth.py       Depth Anything V2 (extra `[torch]`)
* geometry.py    normals and occlusion, from depth and segments
* attention.py   fixations, a language model's attention and the dialogue so far, as planes
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
