"""Defaults that commands and functions share; nothing here imports torch."""

DEFAULT_MODEL = "stories-tiny"
"""Used where no model is named."""
