"""A text as somebody read it: characters, how sure the reader was of each, and where they stand.

Whatever the format, a reading is the text of a file and the characters that were read in it. What
is corrected replaces characters where they stand, so that everything else survives untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dsl.correction.characters import Characters
from dsl.correction.symbol import Symbol


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
    scale: str = ""
    """Whose confidences they are, if that is known: a name of `tesseract.MEASURED`."""

    def __post_init__(self) -> None:
        columns = self.symbols
        if not isinstance(columns, Characters):
            begins, ends = ([getattr(s, name) for s in columns] for name in ("begin", "end"))
            columns = Characters("_" * len(begins), begins, ends)
        if not columns.in_order():
            raise ValueError("symbols stand one after the other in a file, and these do not")
        if columns and columns.ends[-1] > len(self.source):
            raise ValueError(
                f"a symbol ends at {columns.ends[-1]} of {len(self.source)} characters"
            )

    @property
    def text(self) -> str:
        """What was read; a gap is `_`."""
        if isinstance(self.symbols, Characters):
            return self.symbols.text
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
