"""Query x words -> which of the words that were read in an image answer a question.

* match: the words of a page against a question; begin here.
* candidates: which of the values that were found is the answer.
* question: what a question asks of the writing.
* page: everything about a page that does not depend on the question: labels, neighbours, types.
* types: what looks like a date, an amount, an address.
"""
