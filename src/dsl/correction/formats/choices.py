"""What else a character might be, as Tesseract scores it (`lstm_choice_mode=2`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dsl.correction.characters import Alternatives

COEFFICIENT = 0.05
"""Tesseract's lstm_rating_coefficient over 100, unless it was told otherwise."""


def alternatives(read: str, confidence: float | None, choices: Alternatives) -> Alternatives:
    """Turn scores into probabilities.

    A score of 0 … 1 is no probability but 1 − 0.05 r, cut off at 0, where r is minus the logarithm
    of one up to a constant. What is scored s, where the character that was read is scored s₀ and
    has confidence c, gets c exp((s − s₀) / 0.05): the ratios are right, the sum may exceed 1.
    Choices that were cut off are left out before.
    """
    if confidence is None:
        return ()
    scores = dict(choices)
    own = scores.pop(read, max(scores.values(), default=0.0))
    return tuple(
        (text, min(1.0, confidence * math.exp((score - own) / COEFFICIENT)))
        for text, score in scores.items()
    )


def shared(characters: int, choices: Sequence[tuple[int, Alternatives]]) -> dict[int, Alternatives]:
    """Say which choices are which character's.

    Args:
        characters: How many a word has.
        choices: Each with how many characters of the word stood before it. They follow their
            character, or all follow the word.
    """
    if len(choices) == characters and all(before == characters for before, _ in choices):
        return dict(enumerate(scores for _, scores in choices))
    return {before - 1: scores for before, scores in choices if before}
