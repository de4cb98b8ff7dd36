"""Small vision-language models, trained from nothing, that really answer: what is lost where tokens are dropped?"""
