"""Confidences as Tesseract writes them: 0 to 100."""

from __future__ import annotations

from dsl.correction.formats.places import shown


def percent(written: str, name: str) -> float:
    """Return a confidence of 0 … 100 as a probability; `name` is what an error calls it."""
    try:
        number = float(written)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 100:
        raise ValueError(f"{name} must lie in 0 … 100, got {shown(written)}")
    return number / 100
