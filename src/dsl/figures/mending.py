"""A doubtful text and what it became, letter by letter, as HTML that wraps where the page ends."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from dsl.correction.mending import Mended
from dsl.figures.svg import ink, shade


def section(repair: Mended, written: str) -> str:
    """Show the texts, the letters with their probabilities, and a table of what changed."""
    return (
        "<p>A reader, say of a damaged page, saw this. It was sure of most letters, doubted some, "
        "and could not make out others at all (_). The model gets every letter with its "
        "confidence, and weighs it against what it knows of English.</p>"
        f"{_texts(repair, written)}"
        '<p><b class="gap">Green and underlined</b> filled a gap; '
        '<b class="mended">yellow and underlined</b> replaced the letter struck out before it.</p>'
        f"{_letters(repair)}{_table(repair)}"
    )


def _texts(repair: Mended, written: str) -> str:
    marked = []
    for was, sure, now in zip(repair.read, repair.confidence, repair.repaired, strict=True):
        if sure == 0:
            marked.append(f'<b class="gap">{escape(now)}</b>')
        elif was != now:
            marked.append(f'<s>{escape(was)}</s><b class="mended">{escape(now)}</b>')
        else:
            marked.append(escape(now))
    lines = [
        f'<dt>Read</dt><dd class="text">{escape(repair.read)}</dd>',
        f'<dt>Mended</dt><dd class="text">{"".join(marked)}</dd>',
    ]
    if written:
        right = sum(a == b for a, b in zip(repair.repaired, written, strict=True))
        before = sum(a == b for a, b in zip(repair.read, written, strict=True))
        lines.append(
            f'<dt>Written</dt><dd class="text">{escape(written)}</dd><dt>Right</dt>'
            f"<dd>{right} of {len(written)} letters; {before} before mending</dd>"
        )
    return f"<dl>{''.join(lines)}</dl>"


def _letters(repair: Mended) -> str:
    words = "".join(f'<span class="word">{word}</span>' for word in _words(repair))
    return (
        '<figure><div class="letters" role="img" aria-label="Each letter as read, shaded by the '
        "reader's confidence, above the letter as mended, shaded by the model's probability. The "
        f'table below has the numbers of those that changed.">{words}</div>'
        f"<figcaption>{key('0, unknown', '1, certain')} Above: each letter as it was read, on the "
        "colour of the reader's confidence. Below: the letter as mended, on the colour of the "
        "model's probability for it given all that was read, <em>before</em> any letter was "
        "decided. Numbers are the positions of the table.</figcaption></figure>"
    )


def _words(repair: Mended) -> Iterator[str]:
    """Group the cells so that lines break between words."""
    changed, cells = set(repair.changes()), ""
    for i, now in enumerate(repair.repaired):
        number = i + 1 if i in changed else ""
        cells += (
            f'<span class="cell">{_cell("was", repair.read[i], repair.confidence[i])}'
            f"{_cell('now', now, repair.posterior[i])}<small>{number}</small></span>"
        )
        if now == " ":
            yield cells
            cells = ""
    yield cells


def _cell(kind: str, letter: str, value: float) -> str:
    colour = shade(value)
    style = f"background:{colour};color:{ink(colour)}"
    return f'<span class="{kind}" style="{style}">{escape(letter)}</span>'


def _table(repair: Mended) -> str:
    rows = []
    for i in repair.changes():
        others = ", ".join(
            f'<span class="nowrap">{_letter(letter)} {_percent(p)}</span>'
            for letter, p in repair.alternatives[i]
        )
        gap = repair.confidence[i] == 0
        read = "gap" if gap else _letter(repair.read[i])
        sure = "–" if gap else _percent(repair.confidence[i])
        rows.append(
            f'<tr><th scope="row" class="n">{i + 1}</th><td>{read}</td><td class="n">{sure}</td>'
            f'<td>{_letter(repair.repaired[i])}</td><td class="n">{_percent(repair.posterior[i])}'
            f"</td><td>{others}</td></tr>"
        )
    columns = (
        '<th scope="col" class="n">position</th><th scope="col">read</th>'
        '<th scope="col" class="n">confidence</th><th scope="col">new</th>'
        '<th scope="col" class="n">probability</th><th scope="col">alternatives</th>'
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Letters that changed"><table>'
        "<caption>The letters that changed. Probability: the model's, of the new letter, before "
        "any was decided. Alternatives: the likeliest others at that time; one of them can be "
        "likelier than the letter that won, because each decision changes the odds of the "
        "rest.</caption>"
        f"<thead><tr>{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def key(low: str, high: str) -> str:
    """Draw the scale of colours between the names of its ends."""
    colours = ", ".join(shade(value) for value in (0.0, 0.5, 1.0))
    return (
        f'<span class="key"><span>{escape(low)}</span><span class="bar" role="img" '
        'aria-label="white, then yellow, then deep blue" '
        f'style="background:linear-gradient(90deg, {colours})"></span>'
        f"<span>{escape(high)}</span></span>"
    )


def _letter(letter: str) -> str:
    return '<span class="text">space</span>' if letter == " " else f"<code>{escape(letter)}</code>"


def _percent(p: float) -> str:
    """Round to whole percents, without calling anything certain that is not."""
    return "&lt;1%" if 0 < p < 0.005 else "&gt;99%" if 0.995 < p < 1 else f"{100 * p:.0f}%"
