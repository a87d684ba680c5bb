"""The symbols of a file as columns: a file of ten million characters needs few objects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import le
from typing import overload

from dsl.correction.symbol import Symbol

Alternatives = Sequence[tuple[str, float]]
UNSAID = math.nan
"""The confidence of a character of which the reader does not say how sure it was."""


@dataclass(frozen=True)
class Characters(Sequence[Symbol]):
    """Symbols that are made when they are asked for."""

    text: str
    """One character for each symbol."""
    begins: Sequence[int]
    ends: Sequence[int]
    confidences: Sequence[float] = ()
    """nan where the reader does not say; empty if it never does."""
    alternatives: Mapping[int, Alternatives] = field(default_factory=dict)
    """By place, where there are any."""
    gaps: frozenset[int] = frozenset()
    """Places of which nothing was made out."""

    def __len__(self) -> int:
        return len(self.text)

    @overload
    def __getitem__(self, place: int) -> Symbol: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Symbol]: ...
    def __getitem__(self, place: int | slice) -> Symbol | Sequence[Symbol]:
        places = range(len(self.text))[place]
        return self._symbol(places) if isinstance(places, int) else [*map(self._symbol, places)]

    def __iter__(self) -> Iterator[Symbol]:
        return map(self._symbol, range(len(self.text)))

    def _symbol(self, place: int) -> Symbol:
        confidence = self.confidences[place] if self.confidences else UNSAID
        return Symbol(
            "" if place in self.gaps else self.text[place],
            self.begins[place],
            self.ends[place],
            None if math.isnan(confidence) else confidence,
            self.alternatives.get(place, ()),
        )

    def in_order(self) -> bool:
        """Whether each ends where the next begins, or before."""
        each = all(map(le, self.begins, self.ends))
        return each and all(map(le, self.ends, islice(self.begins, 1, None)))
