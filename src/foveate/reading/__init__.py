"""What is written in an image: words and lines with their boxes, from any reader.

* words: `Word` and `Words`, the values; a texture keeps them as `texture.words`.
* protocol: what a reader owes: `read(rgb) -> words`.
* rapid: RapidOCR (extra `[text]`), the default; its models lie inside its wheel. tesseract: the program of that name.
* letters: a line that was recognised -> words with boxes. order: lines -> reading order.
* pdf: a page of a PDF as a picture, and the words of its text layer.
* readers: finds the reader, checks what it gives, reads an image once.

Nothing here looks at a question.
"""

from foveate.reading.protocol import WordReader
from foveate.reading.words import Line, Word, Words

__all__ = ["Line", "Word", "WordReader", "Words"]
