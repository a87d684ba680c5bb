"""The version, in its own file, so that it can be read without importing the whole package."""

__version__ = "0.3.0"
