"""One character that somebody read, how sure they were of it, and where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsl.arguments import probability


@dataclass(frozen=True)
class Symbol:
    """One character that was read."""

    text: str
    """What was read; empty for a gap, a character that could not be made out."""
    begin: int
    """Where it stands in the file's text, in characters from 0."""
    end: int
    """Where it ends: markup may spell one character with several (`&amp;`)."""
    confidence: float | None = None
    """The probability that it was read rightly; None if the reader does not say."""
    alternatives: Sequence[tuple[str, float]] = ()
    """Other characters that the reader considered, with their probabilities."""

    def __post_init__(self) -> None:
        if len(self.text) > 1:
            raise ValueError(f"a symbol is one character, got {self.text!r}")
        if not 0 <= self.begin <= self.end:
            raise ValueError(f"a symbol begins before it ends, got {self.begin} … {self.end}")
        if self.confidence is not None:
            probability(f"the confidence of {self.text!r}", self.confidence)
        for text, share in self.alternatives:
            probability(f"the confidence of {text!r}", share)

    @property
    def is_gap(self) -> bool:
        """Whether nothing was made out."""
        return not self.text
