"""The demonstration as one HTML page: pictures and tables inside, nothing fetched from anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from dsl.apps.demo.mending import Mended
from dsl.apps.demo.paths import brightness
from dsl.apps.demo.svg import Number, heatmap, ink, picture, shade, text, ticks

COLOURS = ("#4053d3", "#8a6800", "#b51d14", "#007499", "#00743c", "#b01674")
ON_DARK = ("#98a6ff", "#ddb310", "#ff8379", "#00beff", "#00c268", "#fb82c8")
"""The same hues where the page is dark, which says so through the class of a curve."""
DASHES = ("none", "8 3", "2 3", "10 3 2 3", "5 5", "14 4")

Curve = Sequence[tuple[float, float]]
WIDTH, PLOT = 420, 200
LEFT, RIGHT, TOP = 42, 14, 26
RADIUS = 8
"""Of the badge that carries a curve's number."""


def lines(
    series: Mapping[str, Curve], *, title: str, description: str, x_name: str, y_name: str
) -> str:
    """Draw curves over axes from zero, with a legend below."""
    points = [point for curve in series.values() for point in curve]
    if not points:
        raise ValueError("a chart needs at least one point")
    x_marks = _axis(max(x for x, _ in points))
    y_marks = _axis(max(y for _, y in points))
    inner = WIDTH - LEFT - RIGHT
    parts = [text(4, 14, y_name, anchor="start")]
    for y in y_marks:
        at = PLOT * (1 - y / y_marks[-1])
        parts.append(_gridline(f"M{LEFT} {TOP + at:.1f}h{inner}", y == 0))
        parts.append(text(LEFT - 6, TOP + at + 4, f"{y:g}", anchor="end"))
    for x in x_marks:
        at = LEFT + inner * x / x_marks[-1]
        parts.append(_gridline(f"M{at:.1f} {TOP}v{PLOT}", x == 0))
        parts.append(text(at, TOP + PLOT + 16, f"{x:g}"))
    parts.append(text(LEFT + inner / 2, TOP + PLOT + 33, x_name))
    placed = {
        name: [
            (LEFT + inner * x / x_marks[-1], TOP + PLOT * (1 - y / y_marks[-1])) for x, y in curve
        ]
        for name, curve in series.items()
    }
    parts += [_curve(i, curve) for i, curve in enumerate(placed.values())]
    parts += [_badge(i, *_free(i, list(placed.values()))) for i in range(len(placed))]
    below = TOP + PLOT + 56
    parts += [_entry(i, name, below) for i, name in enumerate(series)]
    height = below + 22 * ((len(series) - 1) // 3) + 14
    return picture(parts, width=WIDTH, height=height, title=title, description=description)


def _axis(top: float) -> list[float]:
    """Mark an axis that holds 0 to `top`: its last mark is not below."""
    marks = ticks(top or 1.0)
    return marks if marks[-1] >= (top or 1.0) * 0.999 else [*marks, marks[-1] + marks[1]]


def _gridline(path: str, axis: bool) -> str:
    return f'<path d="{path}" stroke="currentColor" stroke-opacity="{0.8 if axis else 0.18}"/>'


def _curve(number: int, curve: Curve) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in curve)
    return f'<polyline points="{path}" fill="none" stroke-width="2" {_pen(number)}/>'


def _free(number: int, curves: Sequence[Curve]) -> tuple[float, float]:
    """Find where on its curve a badge stands furthest from the others.

    Where they coincide, each takes another share of the way, so that none hides another.
    """

    def at(curve: Curve, share: float) -> tuple[float, float]:
        return curve[round(share * (len(curve) - 1))]

    def distance(share: float) -> float:
        y = at(curves[number], share)[1]
        others = (curve for i, curve in enumerate(curves) if i != number)
        return min((abs(at(curve, share)[1] - y) for curve in others), default=0.0)

    best = max((i / 20 for i in range(2, 19)), key=distance)
    apart = distance(best) > 2 * RADIUS
    return at(curves[number], best if apart else (number + 0.5) / len(curves))


def _badge(number: int, x: Number, y: Number) -> str:
    """Draw a curve's number in a circle."""
    i = number % len(COLOURS)
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" class="badge curve-{i}" fill="white" '
        f'stroke="{COLOURS[i]}" stroke-width="1.5"/>'
        f"{text(x, y + 4, str(number + 1), size=11)}"
    )


def _entry(number: int, name: str, y: Number) -> str:
    """Name a curve in the legend: its number, a piece of it, its name."""
    x = 14 + (WIDTH - 14) / 3 * (number % 3)
    y += 22 * (number // 3)
    piece = f'<path d="M{x + 10:.1f} {y:.1f}h24" stroke-width="2" {_pen(number)}/>'
    return f"{_badge(number, x, y)}{piece}{text(x + 38, y + 4, name, anchor='start')}"


def _pen(number: int) -> str:
    i = number % len(COLOURS)
    return f'class="curve-{i}" stroke="{COLOURS[i]}" stroke-dasharray="{DASHES[i]}"'


LIGHT = {
    "page": "#ffffff",
    "ink": "#1f2328",
    "soft": "#57606a",
    "rule": "#d0d7de",
    "gap": "#d5f0dc",
    "mended": "#fde3b0",
    "wrong": "#a3150d",
}
DARK = {
    "page": "#14171c",
    "ink": "#e6e8eb",
    "soft": "#a9b1bb",
    "rule": "#3a414b",
    "gap": "#1d4a2c",
    "mended": "#5a4208",
    "wrong": "#ff9d94",
}

LAYOUT = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--page); overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { margin-top: 2.5rem; font-size: 1.3rem; }
h3 { margin: 2rem 0 0; font-size: 1.05rem; } h3 + p { margin-top: .2rem; }
small, .soft, figcaption, caption { color: var(--soft); } figcaption, caption { font-size: .9rem; }
table { border-collapse: collapse; margin: 1rem 0; overflow-wrap: normal; }
caption { text-align: left; padding-bottom: .4rem; }
td, th { border-bottom: 1px solid var(--rule); padding: .35rem .9rem .35rem 0; text-align: left;
  vertical-align: top; }
td:last-child, th:last-child { padding-right: 0; }
.n { text-align: right; font-variant-numeric: tabular-nums; } td.n, .nowrap { white-space: nowrap; }
th small { font-weight: normal; } .hint { display: none; }
.text, code { font-family: ui-monospace, monospace; font-size: .9rem; }
.text { white-space: pre-wrap; }
dl { display: grid; grid-template-columns: auto 1fr; gap: .2rem 1rem; } dd { margin: 0; }
dt { color: var(--soft); }
figure { margin: 1rem 0; } svg { display: block; }
.scroll { overflow-x: auto; } .scroll:focus-visible { outline: 2px solid currentColor; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr));
  gap: 1rem; } .charts svg { width: 100%; height: auto; }
.letters { font-family: ui-monospace, monospace; line-height: 1.5rem; }
.word, .cell { display: inline-block; vertical-align: top; } .cell { width: 1.15rem; }
.cell > * { display: block; height: 1.5rem; text-align: center; white-space: pre; }
.cell small { font-size: .65rem; line-height: 1rem; font-family: system-ui, sans-serif; }
.key { display: inline-flex; align-items: center; gap: .4rem; margin-right: .6rem; }
.bar { display: inline-block; width: 6rem; height: .8rem; border: 1px solid var(--rule); }
b.gap { background: var(--gap); } b.mended { background: var(--mended); }
b.gap, b.mended { text-decoration: underline; } s { color: var(--wrong); }
.badge { fill: var(--page); }
@media (max-width: 40rem) { body { margin: 1rem auto; } dl { display: block; }
  dd { margin-bottom: .5rem; } td, th { padding-right: .35rem; font-size: .8rem; }
  thead th { font-size: .7rem; } td code, td .text { font-size: .8rem; } }
@media (max-width: 62rem) { .hint { display: inline; } }
"""


def style() -> str:
    """Write the style sheet."""
    return (
        f":root {{ color-scheme: light dark; {_variables(LIGHT)} }}\n{_curves(COLOURS)}"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }}\n"
        f"{_curves(ON_DARK)}}}\n{LAYOUT}"
    )


def _variables(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def _curves(colours: tuple[str, ...]) -> str:
    return "".join(f".curve-{i} {{ stroke: {colour}; }}\n" for i, colour in enumerate(colours))


def section(repair: Mended, written: str) -> str:
    """Show the texts, the letters with their probabilities, and a table of what changed."""
    return (
        "<p>A reader, say of a damaged page, saw this. It was sure of most letters, doubted some, "
        "and could not make out others at all (_). The model gets every letter with its "
        "confidence, and weighs it against what it knows of English.</p>"
        f"{_texts(repair, written)}"
        '<p><b class="gap">Green and underlined</b> filled a gap; '
        '<b class="mended">yellow and underlined</b> replaced the letter struck out before it.</p>'
        f"{_mended_letters(repair)}{_mended_table(repair)}"
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


def _mended_letters(repair: Mended) -> str:
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


def _mended_table(repair: Mended) -> str:
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


PATHS = {
    "mdlm": "masked diffusion: every token is revealed once, at a random step",
    "remdm-loop": "masked diffusion that takes tokens back: it remasks some and reveals them anew",
    "roar": "random-order autoregressive: one token at a time, in a random order",
    "causal": "left to right, one token at a time",
    "hybrid": "continuous diffusion first, all tokens at once; then the doubtful ones are redrawn",
}


@dataclass(frozen=True)
class Walk:
    """One text along one path, and the record of its steps."""

    name: str
    sampler: str
    text: str
    nfe: int
    seconds: float
    bits: float
    """Of the text by the model's own ROAR, per token."""
    bits_stderr: float
    records: Sequence[Mapping[str, Any]]


def page(
    model: str,
    walks: Sequence[Walk],
    fills: Sequence[tuple[str, str]],
    repair: Mended,
    seed: int,
    written: str = "",
) -> str:
    """Compose the page: what is useful first, then how it comes about."""
    body = [
        "<h1>Discrete stochastic localization</h1>",
        "<p>Small language models at work. They do not write from left to right: each token has "
        "its own signal-to-noise ratio (SNR), from 0, where nothing is known of it, to 100, where "
        "it is decided, and tokens may be anywhere in between, in any order. So the same network "
        "mends a text in which some letters are doubtful, fills gaps, and writes along many "
        "different paths.</p>",
        f'<p class="soft">Models {escape(model)}, seed {seed}. The one of letters knows English '
        "words, the one of stories writes for small children; neither knows more.</p>",
        "<h2>Mending a doubtful text</h2>",
        section(repair, written),
        "<h2>Filling a gap</h2>",
        "<p>What is around the gap is certain; what is in it was drawn.</p>",
        "<ul>" + "".join(f"<li>{_filled(*fill)}</li>" for fill in fills) + "</ul>",
        "<h2>One network, five paths</h2>",
        "<p>From one seed and nothing else known, the network writes a text along each path.</p>",
        _table(walks),
        *(_path(walk) for walk in walks),
        "<h2>How sure, and how much work</h2>",
        _charts(walks),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>DSL demonstration</title><style>\n{style()}</style></head>\n"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _filled(asked: str, text: str) -> str:
    """Mark what was written into the gap."""
    before, _, rest = asked.partition("[")
    after = rest.partition("]")[2]
    middle = text[len(before) : len(text) - len(after)]
    return (
        f'<span class="text">{escape(before)}<b class="gap">{escape(middle)}</b>'
        f"{escape(after)}</span>"
    )


def _table(walks: Sequence[Walk]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(w.name)}<br><small>{escape(w.sampler)}</small></th>'
        f'<td class="n">{w.nfe}</td><td class="n">{w.seconds:.2f}</td>'
        f'<td class="n">{w.bits:.2f} ± {w.bits_stderr:.2f}</td></tr>'
        for w in walks
    )
    numbers = ("denoiser calls", "seconds", "bits per token")
    columns = "".join(f'<th scope="col" class="n">{head}</th>' for head in numbers)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="The five paths"><table>'
        "<caption>The work of each path. Bits are the model's own opinion of its text (ROAR "
        "estimate): few means likely, which is not the same as good.</caption>"
        f'<thead><tr><th scope="col">path</th>{columns}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        "<p><small>The number after @ is the number of steps that was asked for; a last one "
        "decides what is left open. A step in which nothing is revealed asks the network nothing, "
        "so there can be fewer calls than steps; a continuous step asks it twice.</small></p>"
        f"<p>{key('SNR 0', 'decided')} In the pictures a column is a token and a row is a step, "
        "from the first at the top to the last at the bottom: white is SNR 0, yellow is in "
        "between, deep blue is a decided token. "
        '<span class="hint">On a narrow screen they scroll sideways.</span></p>'
    )


def _path(walk: Walk) -> str:
    """Show one path: what it is, the text it wrote, and the SNR of each token on the way."""
    kind = PATHS.get(walk.sampler.partition("@")[0])
    steps = brightness(walk.records)
    # Tokens of several letters have no room under their column.
    letters = walk.text if len(walk.text) == len(steps[0]) else ""
    drawn = heatmap(
        steps,
        title=f"SNR of every token along {walk.name}",
        description=f"{len(steps) - 1} steps down, {len(steps[0])} positions across; the text "
        "that was written is underneath.",
        letters=letters,
    )
    name, about = escape(walk.name), f"<p>{kind[0].upper()}{kind[1:]}.</p>" if kind else ""
    return (
        f"<h3>{name}</h3>{about}"
        f'<p class="text">{escape(walk.text)}</p>'
        f'<figure><div class="scroll" tabindex="0" role="region" aria-label="Picture of {name}">'
        f"{drawn}</div><figcaption>{name} ({escape(walk.sampler)}): the SNR of every token, "
        f"{len(steps) - 1} steps.</figcaption></figure>"
    )


def _charts(walks: Sequence[Walk]) -> str:
    sharp = _chart(
        walks,
        "mean_max_prob",
        "Sharpness",
        "largest probability, averaged over positions",
        "How sure the network is: at 1 it has no doubt about any token.",
    )
    work = _chart(
        walks,
        "remasks_per_token",
        "Remask workload",
        "times a token was masked again, on average",
        "How much was taken back: a path at 0 masks no token again.",
    )
    return f'<div class="charts">{sharp}{work}</div>'


def _chart(walks: Sequence[Walk], field: str, title: str, y_name: str, caption: str) -> str:
    series = {}
    for walk in walks:
        n = max(1, len(walk.records) - 1)
        series[walk.name] = [(i / n, float(r[field])) for i, r in enumerate(walk.records)]
    ends = ", ".join(f"{name} {curve[-1][1]:.2f}" for name, curve in series.items())
    drawn = lines(
        series,
        title=f"{title}: {y_name}",
        description=f"One curve for each path. At the end of the path: {ends}.",
        x_name="share of the path",
        y_name=y_name,
    )
    return f"<figure>{drawn}<figcaption><b>{title}.</b> {caption}</figcaption></figure>"
