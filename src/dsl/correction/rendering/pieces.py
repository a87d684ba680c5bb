"""A corrected text as pieces: stretches that stayed as they were read, and edits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dsl.correction.result import Edit

SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}
CARET = "‸"
"""Where nothing stood."""


def pieces(edits: Iterable[Edit], begin: int, end: int) -> Iterator[range | Edit]:
    """Give the places of symbols around edits, and the edits, in the order of the text.

    Args:
        edits: Those of the stretch.
        begin: The first symbol of the stretch.
        end: The one behind the last.
    """
    for edit in edits:
        assert begin <= edit.place, "edits come in order"
        if begin < edit.place:
            yield range(begin, edit.place)
        yield edit
        begin = edit.place + edit.size
    if begin < end:
        yield range(begin, end)


def visible(text: str, *, nothing: str = "") -> str:
    """Show what an edit is about: white space and what cannot be printed by signs."""
    return "".join(SIGNS.get(c, c if c.isprintable() else "\ufffd") for c in text) or nothing


def read(edit: Edit) -> str:
    """Show what stood at the place of an edit: a gap is `_`, and nothing a caret."""
    return visible(edit.old, nothing="_" * edit.size or CARET)


def explained(edit: Edit) -> str:
    """Say how probable an edit is, and what else could stand there."""
    others = [f"{visible(text, nothing='nothing')} {p:.2f}" for text, p in edit.alternatives]
    return f"{edit.probability:.2f}" + (f"; others: {', '.join(others)}" if others else "")
