"""Video: pictures of a clip with their true times, the codec's motion vectors, clips that survive a crash.

PyAV (the extra `video`) is imported when a video file is opened, not before.
"""
