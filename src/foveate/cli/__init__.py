"""The command `foveate`: one file a command. Begin with main.py, which lists them.

encode.py also has `read` and `channels`, and how every command gets its texture; look.py has `demo`; terminal.py what
they share: options, tables, progress, files of results. Only typer is imported at the top of these files, everything
else when a command runs: `foveate --help` takes a tenth of a second.
"""
