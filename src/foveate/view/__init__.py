"""The viewer: a local page to play with relevance maps, kept cells and channels. `foveate view` starts it.

    opening.py    a path -> what is shown of it: nothing, an image, a texture, a folder, a store, a clip
    gallery.py    a list of images, and a folder      stores.py    a store: its list, search
    clips.py      a clip: its pictures by number, and frames of its stream for the questions asked
    session.py    what is shown, how it is encoded, its images by id and their textures
    app.py        a target -> an ASGI application (Starlette), with the page
    images.py     take an image, describe it, its pixels, its channels; sample photographs
    questions.py  the map of a question, why, and what it goes by beside its words: a gaze, a dialogue
    models.py     a vision-language model's answers, beside the tokens that it saw
    service.py    an operation: what it takes (pydantic), its answer, its description (OpenAPI)
    wire.py       arrays as one message      decoding.py    uploads are decoded in a process of their own
    guard.py      who may ask, how much and for how long
    server.py     the application on a port of this machine (uvicorn)
    static/       the page: JavaScript modules without a build step

The browser colours, thresholds and allocates (static/allocate.js equals `foveate.allocate`, tested cell by cell); the
server only encodes and scores. It keeps no state but textures: two tabs cannot mix.
"""
