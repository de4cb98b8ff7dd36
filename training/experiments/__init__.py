"""What else could be learned: one command each, which prints a table and a line of JSON (docs/learned.md)."""
