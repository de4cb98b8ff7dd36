"""Which visual tokens of an image a model gets: how many, which, those that a caller gives, regions to crop."""
