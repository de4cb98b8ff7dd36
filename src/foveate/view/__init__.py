"""The viewer: a local page to play with relevance maps, kept cells and channels. `foveate view` starts it.

    opening.py    what it was pointed at: nothing, an image, a texture, a folder, a store, a clip; target.py is any
    folders.py    a folder: its list, small pictures      stores.py    a store: its list, search      files.py    a file
    gallery.py    the routes of a list of images
    encoding.py   how images are encoded and asked about: the options of the command
    app.py        a target -> an ASGI application (Starlette): the routes of the modules below
    page.py       the page itself, and what it is told of the session
    images.py     take an image, describe it, show its pixels
    examples.py   photographs to begin with
    asking.py     questions; questions.py has what the browser gets of an answer
    planes.py     channels: their values at the cells, and one plane at a mip level
    priors.py     what a question goes by beside its words: a gaze, a dialogue
    models.py     a vision-language model's answers, beside the tokens that it saw
    clips.py      a clip: its pictures by number, and frames of its stream for the questions asked
    pictures.py   the images of a session by content id, and their textures, encoded once
    wire.py       arrays as one message: a JSON header and their bytes
    reply.py      messages and errors as answers
    guard.py      who may ask, how much and for how long      decoding.py    uploads, in a process of their own
    openapi.py    what all routes take and answer
    server.py     the application on a port of this machine (uvicorn)
    static/       the page: JavaScript modules without a build step

The browser colours, thresholds and allocates by itself (static/allocate.js is `foveate.allocate`, tested cell by cell);
the server only encodes and scores. It keeps no state but textures: two tabs cannot mix.
"""
