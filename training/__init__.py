"""How the shipped files were made, models that judge, and experiments with a verdict; not part of the wheel."""
