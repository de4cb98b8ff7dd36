"""Video: key frames are encoded, everything else is carried along the motion.

    for frame in foveate.video.stream("clip.mp4", "the dog", budget=128):
        frame.index, frame.time, frame.relevance, frame.kept, frame.kept_new, frame.key, frame.confidence

stream.py is where to begin; steps.py makes one frame out of the one before. reader.py reads clips (PyAV, the extra
`video`, is imported when a video file is opened), flow.py finds motion, carry.py carries features along it, refresh.py
says when to encode again, temporal.py what a frame inherits, transmit.py what a model has not seen yet.
"""

from foveate.video.flow import Dis
from foveate.video.frame import Frame
from foveate.video.reader import open_clip
from foveate.video.refresh import Refresh
from foveate.video.stream import Stream, stream
from foveate.video.volume import Volume, volume

__all__ = ["Dis", "Frame", "Refresh", "Stream", "Volume", "open_clip", "stream", "volume"]
