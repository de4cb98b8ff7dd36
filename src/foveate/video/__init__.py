"""Video: keyframes are encoded, everything between them is propagated along the motion. Begin with streams.py.

    for frame in foveate.video.stream("clip.mp4", "the dog", budget=128):
        frame.index, frame.time, frame.relevance, frame.kept, frame.kept_new, frame.keyframe, frame.confidence

* streams: a clip and questions -> frames; state: one frame from the state before; outlook: what is sure of the next
* decode: files (PyAV, the extra `video`), folders, arrays -> pictures with their times; export: writes clips
* flow: motion between two frames; propagation: encoded features where the motion took them; refresh: when to encode
  again, and which parts; words: what was read in a keyframe, in the frames after it
* temporal: smoothing of maps, hysteresis of kept cells, what a model has not been sent yet
* volumes: frames as one block in time and space
"""

from foveate.video.decode import open_clip
from foveate.video.flow import Dis
from foveate.video.refresh import Refresh
from foveate.video.state import Frame, Propagation
from foveate.video.streams import Stream, stream
from foveate.video.volumes import Volume, volume

__all__ = ["Dis", "Frame", "Propagation", "Refresh", "Stream", "Volume", "open_clip", "stream", "volume"]
