"""Model families: where the tokens of an image lie, and how a stock model takes fewer of them."""
