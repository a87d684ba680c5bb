"""A correction as JSON, as a diff for a terminal, and as HTML.

The JSON has this form:

{"model": "english-tiny",
 "text": the corrected text without markup; `_` is a gap,
 "characters": number of characters read,
 "doubtful": number of characters that are more likely wrong than right,
 "edits": [{"begin": 12, "end": 13,       offsets in the file, from 0
            "line": 1, "column": 13,      the same place, from 1
            "old": "m", "new": "rn",
            "probability": 0.93,          of `new`, given the whole reading
            "alternatives": [{"text": "m", "probability": 0.06}],
            "lengths": [{"longer": 1, "probability": 0.94}],
            "decided": true}]}            false: the text was not changed
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any

from rich.text import Text

from dsl._util.html import SHADES, page
from dsl._util.words import counted
from dsl.apps.correct.formats import places
from dsl.apps.correct.reading import Correction, Edit

SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}
CARET = "‸"
"""Shown in place of no characters."""


def pieces(edits: Iterable[Edit], begin: int, end: int) -> Iterator[range | Edit]:
    """Yield unchanged ranges of symbols, and edits, in the order of the text.

    Args:
        edits: The edits between `begin` and `end`.
        begin: The first symbol.
        end: The symbol after the last one.
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
    """Return a text with signs for white space and unprintable characters."""
    return "".join(SIGNS.get(c, c if c.isprintable() else "\ufffd") for c in text) or nothing


def read(edit: Edit) -> str:
    """Return the old text of an edit; a gap is `_`, an insertion a caret."""
    return visible(edit.old, nothing="_" * edit.size or CARET)


def explained(edit: Edit) -> str:
    """Format the probability of an edit and its alternatives."""
    others = [f"{visible(text, nothing='nothing')} {p:.2f}" for text, p in edit.alternatives]
    return f"{edit.probability:.2f}" + (f"; others: {', '.join(others)}" if others else "")


CONTEXT = 40
"""Characters shown on either side of an edit."""
OLD, NEW, OPEN, SOFT = "red strike", "bold green", "bold yellow", "dim"


def as_diff(correction: Correction) -> Text:
    """Return the lines that hold edits, and a note with the probability of each edit."""
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
    """Yield ranges of symbols around edits, without overlaps, with the number of edits."""
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
    """Return the end of the line, or of the context, in one direction."""
    symbols = correction.reading.symbols
    for _ in range(CONTEXT):
        beside = place if step > 0 else place - 1
        if not 0 <= beside < len(symbols) or symbols[beside].text == "\n":
            break
        place += step
    return place


def _line(correction: Correction, edits: Sequence[Edit], begin: int, end: int) -> Text:
    """Return a range of the text with its edits."""
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
    """Return a note about one edit."""
    mark = "" if edit.decided else "?"
    note = Text().append(f"  {where[0]}:{where[1]}  ", SOFT)
    note.append(read(edit), OLD if edit.decided else "")
    note.append(" → ")
    note.append(visible(edit.new, nothing="nothing") + mark, NEW if edit.decided else OPEN)
    return note.append(f"  {explained(edit)}\n", SOFT)


KEY = "<del>as read</del> <ins>corrected</ins> <mark>undecided</mark> doubt: " + "".join(
    f'<span class="d{level}">{level / SHADES:.1f}</span>' for level in (1, 4, 7, 10)
)
TABLE = """<h{level}>Changes</h{level}>
<div class="scroll" tabindex="0" role="region" aria-label="Changes">
<table>
<thead><tr><th class="n">Line</th><th class="n">Column</th><th>Read</th>
<th class="n">Confidence</th><th>Now</th><th class="n">Probability</th><th>Others</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
"""


def as_html(correction: Correction, title: str = "Corrected text") -> str:
    """Return a whole page under a title, such as the name of the file."""
    return page(title, section(correction))


def section(correction: Correction, level: int = 2) -> str:
    """Return the part of a page that shows a correction: the text, and a table of the changes.

    Args:
        correction: The correction.
        level: The level of the heading above the table.
    """
    decided = len(correction.decided)
    summary = (
        f"{counted(decided, 'change')}, "
        f"{len(correction.edits) - decided:,} left undecided, in "
        f"{counted(len(correction.reading.symbols), 'character')}; by the model {correction.model}."
    )
    rows = "\n".join(_rows(correction))
    return (
        f'<p class="soft">{escape(summary)}</p>\n<p class="key soft">{KEY}</p>\n'
        f'<div class="text box">{"".join(_text(correction))}</div>\n'
        f"{TABLE.format(level=level, rows=rows) if rows else ''}"
    )


def _text(correction: Correction) -> Iterator[str]:
    """Write the text, with links from edits to their rows."""
    number = 0
    for piece in pieces(correction.edits, 0, len(correction.reading.symbols)):
        if isinstance(piece, range):
            yield from _shaded(correction, piece)
        else:
            number += 1
            yield f'<a href="#e{number}" title="{escape(_tooltip(piece))}">{_edit(piece)}</a>'


def _shaded(correction: Correction, places: range) -> Iterator[str]:
    """Write unchanged symbols; neighbours of one shade share an element."""
    symbols = correction.reading.symbols
    for level, run in groupby(places, key=lambda place: _level(correction.doubt[place])):
        text = escape("".join(symbols[place].text or "_" for place in run), quote=False)
        if level:
            tooltip = f"wrong with probability {level / SHADES:.1f}"
            yield f'<span class="d{level}" title="{tooltip}">{text}</span>'
        else:
            yield text


def _level(doubt: float) -> int:
    """Round a doubt to a shade; 0 for nan, a symbol that was not doubtful."""
    return round(doubt * SHADES) if doubt > 0 else 0


def _edit(edit: Edit) -> str:
    if not edit.decided:
        return f"<mark>{escape(read(edit))}</mark>"
    old = f"<del>{escape(read(edit))}</del>" if edit.size else ""
    # an inserted line break also breaks the line
    new = visible(edit.new).replace("␣", " ").replace("↵", "↵\n")
    return old + (f"<ins>{escape(new)}</ins>" if new else "")


def _tooltip(edit: Edit) -> str:
    change = f"{read(edit)} → {visible(edit.new, nothing='nothing')}"
    return f"{change}{'' if edit.decided else ' (undecided)'}: {explained(edit)}"


def _rows(correction: Correction) -> Iterator[str]:
    """Write a table row for each edit."""
    begins = (correction.span(edit)[0] for edit in correction.edits)
    where = places(correction.reading.source, begins)
    for number, (edit, (line, column)) in enumerate(zip(correction.edits, where, strict=True), 1):
        now = escape(visible(edit.new, nothing="nothing"))
        others = ", ".join(f"{visible(t, nothing='nothing')} {p:.2f}" for t, p in edit.alternatives)
        cells = (
            f'<td class="n">{line}</td><td class="n">{column}</td>'
            f'<td>{escape(read(edit))}</td><td class="n">{_confidence(correction, edit)}</td>'
            f"<td>{now if edit.decided else f'<mark>{now}?</mark>'}</td>"
            f'<td class="n">{edit.probability:.2f}</td><td>{escape(others)}</td>'
        )
        yield f'<tr id="e{number}">{cells}</tr>'


def _confidence(correction: Correction, edit: Edit) -> str:
    """Return the reader's confidence in the least certain character of an edit, if it gave any."""
    symbols = correction.reading.symbols[edit.place : edit.place + edit.size]
    stated = [symbol.confidence for symbol in symbols if symbol.confidence is not None]
    return f"{min(stated):.2f}" if stated else ""


DOUBTFUL = 0.5
"""Minimum probability of an error at a doubtful character."""


def record(correction: Correction) -> dict[str, Any]:
    """Return a correction as a dictionary."""
    spans = [correction.span(edit) for edit in correction.edits]
    where = places(correction.reading.source, (begin for begin, _ in spans))
    return {
        "model": correction.model,
        "text": correction.text,
        "characters": len(correction.reading.symbols),
        "doubtful": sum(doubt > DOUBTFUL for doubt in correction.doubt),
        "edits": [
            {
                "begin": begin,
                "end": end,
                "line": line,
                "column": column,
                "old": edit.old,
                "new": edit.new,
                "probability": edit.probability,
                "alternatives": [{"text": t, "probability": p} for t, p in edit.alternatives],
                "lengths": [{"longer": n, "probability": p} for n, p in edit.lengths],
                "decided": edit.decided,
            }
            for edit, (begin, end), (line, column) in zip(
                correction.edits, spans, where, strict=True
            )
        ],
    }


def as_json(correction: Correction) -> str:
    """Return a correction as JSON."""
    return json.dumps(record(correction), indent=2, ensure_ascii=False, allow_nan=False)
