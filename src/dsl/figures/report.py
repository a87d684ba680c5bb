"""The demonstration as one HTML page: pictures and tables inside, nothing fetched from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from dsl.correction.mending import Mended
from dsl.figures.chart import lines
from dsl.figures.mending import key, section
from dsl.figures.paths import brightness
from dsl.figures.svg import heatmap
from dsl.figures.theme import style

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
