"""What Tesseract's confidences mean, as it was measured: `dsl bench trust --texts 48`, seed 0.

Tesseract 5.3 read worn pages of held-out English; docs/correcting.md says how they were made. Other
pages, languages and versions may differ: `dsl correct --fit` measures yours.
"""

from __future__ import annotations

from dsl.correction.trust import Trust

CHARACTERS, WORDS = "tesseract-characters", "tesseract-words"
"""Confidences of single characters, and of whole words."""

MEASURED = {
    CHARACTERS: Trust(
        (
         0.8133, 0.8446, 0.8612, 0.8735, 0.8850, 0.8951, 0.9032, 0.9104, 0.9200, 0.9319, 0.9401,
         0.9481, 0.9552, 0.9598, 0.9640, 0.9687, 0.9737, 0.9782, 0.9825, 0.9865, 0.9940, 0.9957,
        ),
        (
         0.3054, 0.3759, 0.3815, 0.4205, 0.4885, 0.4899, 0.5327, 0.5470, 0.5832, 0.6297, 0.6749,
         0.6843, 0.7295, 0.7510, 0.7552, 0.8227, 0.8416, 0.8715, 0.8924, 0.9330, 0.9938, 0.9999,
        ),
    ),
}  # fmt: skip

BELIEVED: dict[str, Trust] = {}
"""How many of the changes that the default model proposes are right, by the probability it states:
`dsl bench belief --texts 16`, seed 0."""
