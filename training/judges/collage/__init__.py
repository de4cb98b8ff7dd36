"""Cut-out things on photographs, and a small LLaVA that answers questions about them: see __main__.py."""
