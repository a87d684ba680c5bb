"""A text as somebody read it: characters, how sure the reader was of each, and where they stand.

Whatever the format, a reading is the text of a file and the characters that were read in it. What
is corrected replaces characters where they stand, so that everything else survives untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class Reading:
    """The text of a file, and what was read in it."""

    source: str
    """The whole file as it is."""
    symbols: Sequence[Symbol]
    """The characters of the text in reading order, spaces and line breaks included."""
    kind: str = "plain"
    """The format: plain, inline, words, hocr or tsv."""
    separators: frozenset[int] = field(default_factory=frozenset)
    """Places of symbols that the format implies and the file does not spell, such as the space
    between two words of a list. They have no characters of their own (`begin` is `end`)."""

    def __post_init__(self) -> None:
        ends = 0
        for symbol in self.symbols:
            if symbol.begin < ends:
                raise ValueError(
                    f"symbols stand one after the other, got one at {symbol.begin} after {ends}"
                )
            ends = symbol.end
        if ends > len(self.source):
            raise ValueError(f"a symbol ends at {ends} of {len(self.source)} characters")

    @property
    def text(self) -> str:
        """What was read; a gap is `_`."""
        return "".join(symbol.text or "_" for symbol in self.symbols)

    def replaced(self, changes: Iterable[tuple[int, int, str]]) -> str:
        """Write the file again with other characters in some places.

        Args:
            changes: Where a change begins and ends in the file, and what stands there now; in
                order, and none overlapping another.
        """
        parts, done = [], 0
        for begin, end, text in changes:
            if not done <= begin <= end <= len(self.source):
                raise ValueError(f"changes stand one after the other, got {begin} after {done}")
            parts += [self.source[done:begin], text]
            done = end
        return "".join([*parts, self.source[done:]])
