"""What a model gets: images.py (encoded once), prompt.py (ids), tensors.py (what is kept of both), generation.py."""
