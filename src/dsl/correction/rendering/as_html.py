"""A correction as one page that needs nothing else: doubtful letters shaded, edits in place."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby

from dsl.correction.formats.places import places
from dsl.correction.rendering.look import LEVELS, style
from dsl.correction.rendering.pieces import explained, pieces, read, visible
from dsl.correction.result import Correction, Edit

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<h1>{title}</h1>
<p class="soft">{summary}</p>
<p class="key soft">{key}</p>
<div class="text">{text}</div>
{table}</body>
</html>
"""
KEY = (
    "<del>as it was read</del> <ins>as it is now</ins> <mark>left undecided</mark> doubt: "
    + "".join(f'<span class="d{level}">{level / LEVELS:.1f}</span>' for level in (1, 4, 7, 10))
)
TABLE = """<h2>Changes</h2>
<div class="scroll" tabindex="0">
<table>
<thead><tr><th class="n">Line</th><th class="n">Column</th><th>Read</th><th>Now</th>
<th class="n">Probability</th><th>Others</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
"""


def render(correction: Correction, title: str = "Corrected text") -> str:
    """Write the page.

    Args:
        correction: What is shown.
        title: What the page is called, such as the name of the file.
    """
    decided = len(correction.decided)
    summary = (
        f"{decided:,} {'change' if decided == 1 else 'changes'}, "
        f"{len(correction.edits) - decided:,} left undecided, in "
        f"{len(correction.reading.symbols):,} characters; by the model {correction.model}."
    )
    return PAGE.format(
        title=escape(title),
        style=style(),
        summary=escape(summary),
        key=KEY,
        text="".join(_text(correction)),
        table=TABLE.format(rows="\n".join(_rows(correction))) if correction.edits else "",
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
    """Write symbols that stayed, neighbours of one shade together."""
    symbols = correction.reading.symbols
    for level, run in groupby(places, key=lambda place: _level(correction.doubt[place])):
        text = escape("".join(symbols[place].text or "_" for place in run), quote=False)
        if level:
            tooltip = f"something else stood here with probability {level / LEVELS:.1f} or so"
            yield f'<span class="d{level}" title="{tooltip}">{text}</span>'
        else:
            yield text


def _level(doubt: float) -> int:
    """Round a doubt to a shade; nan, where nobody asked, is none."""
    return round(doubt * LEVELS) if doubt > 0 else 0


def _edit(edit: Edit) -> str:
    if not edit.decided:
        return f"<mark>{escape(read(edit))}</mark>"
    old = f"<del>{escape(read(edit))}</del>" if edit.size else ""
    # A line break that is put in breaks the line, too.
    new = visible(edit.new).replace("␣", " ").replace("↵", "↵\n")
    return old + (f"<ins>{escape(new)}</ins>" if new else "")


def _tooltip(edit: Edit) -> str:
    change = f"{read(edit)} → {visible(edit.new, nothing='nothing')}"
    return f"{change}{'' if edit.decided else ' (undecided)'}: {explained(edit)}"


def _rows(correction: Correction) -> Iterator[str]:
    """Write a row for each edit, for those who cannot point at it."""
    begins = (correction.span(edit)[0] for edit in correction.edits)
    where = places(correction.reading.source, begins)
    for number, (edit, (line, column)) in enumerate(zip(correction.edits, where, strict=True), 1):
        now = escape(visible(edit.new, nothing="nothing"))
        others = ", ".join(f"{visible(t, nothing='nothing')} {p:.2f}" for t, p in edit.alternatives)
        cells = (
            f'<td class="n">{line}</td><td class="n">{column}</td>'
            f"<td>{escape(read(edit))}</td>"
            f"<td>{now if edit.decided else f'<mark>{now}?</mark>'}</td>"
            f'<td class="n">{edit.probability:.2f}</td><td>{escape(others)}</td>'
        )
        yield f'<tr id="e{number}">{cells}</tr>'
