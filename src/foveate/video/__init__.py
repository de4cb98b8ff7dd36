"""Video: keyframes are encoded, everything between them is propagated along the motion.

    for frame in foveate.video.stream("clip.mp4", "the dog", budget=128):
        frame.index, frame.time, frame.relevance, frame.kept, frame.kept_new, frame.keyframe, frame.confidence

Begin with stream.py, then step.py. From the bottom:

* decode: files (PyAV, the extra `video`, imported when a file is opened), folders, arrays, cameras -> pictures in time
* flow: motion between two frames (DIS, or any function), composed over frames
* propagate: encoded features, seen again where the motion took them, with their confidence
* refresh: when to encode again, and which parts
* temporal: smoothing of maps, hysteresis of kept cells, what a model has not been sent yet
* step: one frame from the state before. Pure
* stream: a clip and questions -> frames
* volume: frames as one block in time and space
* pick: pictures at even times, for models that take a clip as a few frames
* export: clips that foveate writes
"""

from foveate.video.decode import open_clip
from foveate.video.flow import Dis
from foveate.video.refresh import Refresh
from foveate.video.step import Frame
from foveate.video.stream import Stream, stream
from foveate.video.volume import Volume, volume

__all__ = ["Dis", "Frame", "Refresh", "Stream", "Volume", "open_clip", "stream", "volume"]
