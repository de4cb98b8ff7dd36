"""How the shipped files were made, and how a projector is trained; not part of the wheel."""
