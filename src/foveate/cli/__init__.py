"""The command `foveate`: one file a command, and what they share."""
