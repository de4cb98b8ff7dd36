"""The viewer: a local page to play with relevance maps, kept cells and channels. `foveate view` starts it.

opening.py turns a path into what is shown (`Target`): an image, a texture, a folder (gallery.py), a store (stores.py),
a clip (clips.py). app.py makes an ASGI application of it. images.py, questions.py, teaching.py and models.py have the
operations; service.py what an operation is, guard.py who may ask, decoding.py the process that decodes uploads,
server.py the port, wire.py arrays as one message, session.py what they share. static/ is the page: JavaScript modules
without a build step.

The browser colours, thresholds and allocates (static/allocate.js equals `foveate.allocate`, tested cell by cell); the
server only encodes and scores. It keeps textures, and words that were taught; no state of a tab.
"""
