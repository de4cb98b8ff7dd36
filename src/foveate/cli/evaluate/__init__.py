"""`foveate evaluate`: how good is it on your own data?"""
