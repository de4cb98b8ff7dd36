"""The command `foveate`: one file a command. Begin with main.py, which lists them.

    main.py      the list, and how an error becomes a message
    look.py      look, demo        questions about an image
    encode.py    encode            an image to a texture file; how every command gets its texture
                 read, channels    what is written in an image; all its channels on one sheet
    zoom.py      zoom              small things in large images
    ask.py       ask               a vision-language model
    video.py     video             questions through a clip
    index.py     index             images into a store
    search.py    search            images out of it
    store.py     store ...         what keeps a store whole and quick
    basis.py     basis ...         one basis for many images
    evaluate/    evaluate ...      how good and how fast it is on the user's own data
    doctor.py    doctor            what is installed
    terminal.py  what they share: options, tables, progress, files of results

Only typer is imported at the top of these files, everything else when a command runs: `foveate --help` takes a tenth
of a second. Every command prints a table for people, or, with --json, one JSON object for programs and nothing else;
progress, hints, warnings and errors are on stderr.
"""
