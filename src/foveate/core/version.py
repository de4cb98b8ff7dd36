"""The version, in one place; below everything, so that any module may say it."""

__version__ = "0.1.0"
