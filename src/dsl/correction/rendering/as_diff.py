"""A correction as lines for a terminal: what was read, what it became, and how surely.

    line 1: The [-modem-]{+modern+} corn was [?b|h?]ought
      1:7   m → rn  0.93; others: m 0.06
      1:22  b → h?  0.41; others: b 0.55

Without colours the marks say the same, as those of `git diff --word-diff` do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from dsl.correction.formats.places import places
from dsl.correction.rendering.pieces import explained, pieces, read, visible
from dsl.correction.result import Correction, Edit

CONTEXT = 40
"""Characters shown on either side of an edit."""
OLD, NEW, OPEN, SOFT = "red strike", "bold green", "bold yellow", "dim"


def render(correction: Correction) -> Text:
    """Show the lines that hold edits, and say of each edit how probable it is."""
    begins = [correction.span(edit)[0] for edit in correction.edits]
    where = list(places(correction.reading.source, begins))
    lines, first = Text(), 0
    for begin, end, count in _windows(correction):
        lines.append(f"line {where[first][0]}: ", SOFT)
        edits = correction.edits[first : first + count]
        lines.append_text(_line(correction, edits, begin, end))
        lines.append("\n")
        for edit, there in zip(edits, where[first : first + count], strict=True):
            lines.append_text(_note(edit, there))
        first += count
    return lines


def _windows(correction: Correction) -> Iterator[tuple[int, int, int]]:
    """Give stretches of symbols around edits, and how many edits each has; none overlap."""
    begin = end = count = 0
    for edit in correction.edits:
        first = _reach(correction, edit.place, -1)
        last = _reach(correction, edit.place + edit.size, 1)
        if count and first <= end:
            end, count = max(end, last), count + 1
            continue
        if count:
            yield begin, end, count
        begin, end, count = first, last, 1
    if count:
        yield begin, end, count


def _reach(correction: Correction, place: int, step: int) -> int:
    """Walk from a place to the end of its line, or as far as is shown."""
    symbols = correction.reading.symbols
    for _ in range(CONTEXT):
        beside = place if step > 0 else place - 1
        if not 0 <= beside < len(symbols) or symbols[beside].text == "\n":
            break
        place += step
    return place


def _line(correction: Correction, edits: Sequence[Edit], begin: int, end: int) -> Text:
    """Show a stretch of the text with its edits."""
    shown = Text()
    for piece in pieces(edits, begin, end):
        if isinstance(piece, range):
            symbols = correction.reading.symbols[piece.start : piece.stop]
            text = "".join(symbol.text or "_" for symbol in symbols)
            shown.append(visible(text).replace("␣", " "))
        elif piece.decided:
            if piece.old or piece.size:
                shown.append(f"[-{read(piece)}-]", OLD)
            if piece.new:
                shown.append(f"{{+{visible(piece.new)}+}}", NEW)
        else:
            shown.append(f"[?{read(piece)}|{visible(piece.new)}?]", OPEN)
    return shown


def _note(edit: Edit, where: tuple[int, int]) -> Text:
    """Say what one edit is."""
    mark = "" if edit.decided else "?"
    note = Text().append(f"  {where[0]}:{where[1]}  ", SOFT)
    note.append(read(edit), OLD if edit.decided else "")
    note.append(" → ")
    note.append(visible(edit.new, nothing="nothing") + mark, NEW if edit.decided else OPEN)
    return note.append(f"  {explained(edit)}\n", SOFT)
