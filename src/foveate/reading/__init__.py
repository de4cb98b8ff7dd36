"""What is written in an image: words and lines with their boxes, from any reader.

* `words`: `Word`, `Words` and `WordReader`, what a reader is; a texture keeps words as `texture.words`.
* `rapid`: RapidOCR (extra `[text]`), the default. `tesseract`: the program. `pdf`: a page, and its text layer's words.
* `order`: lines -> reading order. `readers`: finds the reader, checks its words, reads an image once.
"""

from foveate.reading.words import Line, Word, WordReader, Words

__all__ = ["Line", "Word", "WordReader", "Words"]
