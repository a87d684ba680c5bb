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

BELIEVED = {
    CHARACTERS: Trust(
        (
         0.1680, 0.2663, 0.3775, 0.4498, 0.4798, 0.5306, 0.5910, 0.6406, 0.7148, 0.8250, 0.8972,
         0.9516, 0.9909, 0.9995,
        ),
        (
         0.1250, 0.1346, 0.1582, 0.1667, 0.1964, 0.2611, 0.2969, 0.3358, 0.3667, 0.4962, 0.5833,
         0.7013, 0.8469, 0.9932,
        ),
    ),
}  # fmt: skip
"""How many of the changes that the default model proposes to such characters are right, by the
probability that it states: `dsl bench belief --texts 16`, seed 0."""
