"""What is found in a file, noted character by character."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from dsl.correction.characters import UNSAID, Alternatives, Characters
from dsl.correction.reading import Reading

BLANK = "_"
"""What holds the place of a gap in the column of characters."""


@dataclass
class Transcript:
    """What has been found in a file so far, in the order of reading."""

    source: str
    kind: str
    text: list[str] = field(default_factory=list)
    begins: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    confidences: array[float] = field(default_factory=lambda: array("d"))
    alternatives: dict[int, Alternatives] = field(default_factory=dict)
    gaps: set[int] = field(default_factory=set)
    separators: set[int] = field(default_factory=set)
    scale: str = ""

    def add(
        self,
        text: str,
        begin: int,
        end: int,
        confidence: float | None = None,
        alternatives: Alternatives = (),
    ) -> None:
        """Note a character, or a gap if the text is empty."""
        if not text:
            self.gaps.add(len(self.text))
        if alternatives:
            self.alternatives[len(self.text)] = tuple(alternatives)
        self.text.append(text or BLANK)
        self.begins.append(begin)
        self.ends.append(end)
        self.confidences.append(UNSAID if confidence is None else confidence)

    def separate(self, text: str) -> None:
        """Note what the format implies between two words, unless nothing stands before it."""
        if not self.text:
            return
        for character in text:
            self.separators.add(len(self.text))
            self.add(character, self.ends[-1], self.ends[-1])

    def reading(self) -> Reading:
        """Return what was found."""
        symbols = Characters(
            "".join(self.text), self.begins, self.ends, self.confidences, self.alternatives,
            frozenset(self.gaps),
        )  # fmt: skip
        return Reading(self.source, symbols, self.kind, frozenset(self.separators), self.scale)
