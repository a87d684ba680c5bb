"""What Tesseract's confidences mean, as it was measured: `dsl bench trust`.

Tesseract 5.3 read worn pages of held-out English; docs/correcting.md says how they were made. Other
pages, languages and versions may differ: `dsl correct --fit` measures yours.
"""

from __future__ import annotations

from dsl.correction.trust import Trust

CHARACTERS, WORDS = "tesseract-characters", "tesseract-words"
"""Confidences of single characters, and of whole words."""

MEASURED = {
    CHARACTERS: Trust(
        (0.8117, 0.8606, 0.8856, 0.9091, 0.9252, 0.9450, 0.9604, 0.9731, 0.9822, 0.9865, 0.9941,
         0.9957),
        (0.2446, 0.3941, 0.4775, 0.5285, 0.6091, 0.6949, 0.7525, 0.8454, 0.9072, 0.9381, 0.9944,
         0.9999),
    ),
}  # fmt: skip
