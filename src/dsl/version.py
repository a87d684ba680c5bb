"""The version, by itself, so that whoever records it need not import the front door."""

__version__ = "0.3.0"
