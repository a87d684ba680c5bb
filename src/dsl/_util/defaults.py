"""Defaults that commands and functions share; nothing here imports torch."""

DEFAULT_MODEL = "stories-tiny"
"""The model used when none is named."""
