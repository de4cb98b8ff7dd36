"""`python -m foveate`, where the command `foveate` is not on the path."""

from foveate.cli.main import main

if __name__ == "__main__":
    main()
