"""What is written in an image: words and lines with their boxes, from any reader.

* `words`: `Word`, `Words` and `WordReader`, what a reader is; a texture keeps words as `texture.words`.
* `rapid`: RapidOCR (extra `[text]`), the default; its models lie inside its wheel. `tesseract`: the program.
* `order`: lines -> reading order. `pdf`: a page of a PDF as a picture, and the words of its text layer.
* `readers`: finds the reader, checks its words, reads an image once.

Nothing here looks at a question.
"""

from foveate.reading.words import Line, Word, WordReader, Words

__all__ = ["Line", "Word", "WordReader", "Words"]
