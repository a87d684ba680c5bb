"""The demonstration as one HTML page: pictures and tables inside, nothing fetched from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from dsl.figures.paths import brightness
from dsl.figures.svg import heatmap, lines

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #222; }
h1 { font-size: 1.7rem; } h2 { margin-top: 2.2rem; font-size: 1.25rem; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { border-bottom: 1px solid #ddd;
  padding: .35rem .7rem; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.text { font-family: ui-monospace, monospace; font-size: .85rem; }
figure { margin: 1rem 0; } figcaption { color: #555; font-size: .9rem; }
svg { max-width: 100%; height: auto; } .row { display: flex; flex-wrap: wrap; gap: 1rem; }
b.gap { background: #dff3e4; } b.mended { background: #fde9c8; } s { color: #b51d14; }
"""


@dataclass(frozen=True)
class Walk:
    """One text along one path, and the record of its steps."""

    name: str
    sampler: str
    text: str
    nfe: int
    seconds: float
    bits: float
    """Of the text by the model's own ROAR, per character."""
    bits_stderr: float
    records: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Repair:
    """A doubtful text: what was read, how sure the reader was, and what it became."""

    read: str
    confidence: Sequence[float]
    """0 is a gap."""
    repaired: str
    posterior: Sequence[float]
    """How sure the model is of each repaired character."""


def page(
    model: str, walks: Sequence[Walk], fills: Sequence[tuple[str, str]], repair: Repair, seed: int
) -> str:
    """Compose the page."""
    body = [
        "<h1>Discrete stochastic localization</h1>",
        f"<p>Model <b>{escape(model)}</b>, seed {seed}. Every token has its own signal-to-noise "
        "ratio: 0 is a mask, 100 a hard token. One network, which is never told the ratio, serves "
        "all of these paths.</p>",
        "<h2>One network, five paths</h2>",
        _table(walks),
        _legend(walks),
        "<h2>The path of every token</h2>",
        "<p>Each picture runs from the first step at the top to the last at the bottom, one column "
        "for each character: white is SNR 0, yellow is in between, blue is a decided token.</p>",
        *(_snr_figure(walk) for walk in walks),
        "<h2>How sure, and how much work</h2>",
        '<div class="row">',
        _chart(
            walks,
            "mean_max_prob",
            "Sharpness: the largest probability, averaged over all positions",
        ),
        _chart(
            walks,
            "remasks_per_token",
            "Remask workload: how often a token was masked again, on average",
        ),
        "</div>",
        "<h2>Filling a gap</h2>",
        "<ul>" + "".join(f"<li>{_filled(*fill)}</li>" for fill in fills) + "</ul>",
        "<h2>Mending a doubtful text</h2>",
        _repair(repair),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>DSL demonstration</title><style>{STYLE}</style></head>\n"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _table(walks: Sequence[Walk]) -> str:
    rows = "".join(
        f"<tr><td>{escape(w.name)}<br><small>{escape(w.sampler)}</small></td>"
        f'<td class="text">{escape(w.text)}</td><td class="n">{w.nfe}</td>'
        f'<td class="n">{w.seconds:.2f}</td>'
        f'<td class="n">{w.bits:.2f} ± {w.bits_stderr:.2f}</td></tr>'
        for w in walks
    )
    return (
        "<table><thead><tr><th>path</th><th>text</th><th>denoiser calls</th><th>seconds</th>"
        f"<th>bits per character</th></tr></thead><tbody>{rows}</tbody></table>"
        "<p><small>The last column is the model's own opinion of its text (ROAR estimate): low is "
        "likely, which is not the same as good.</small></p>"
    )


PATHS = {
    "mdlm": "masked diffusion: every token is revealed once, at a random step",
    "remdm-loop": "masked diffusion that takes tokens back: it remasks some and reveals them anew",
    "roar": "random-order autoregressive: one token at a time, in a random order",
    "causal": "left to right, one token at a time",
    "hybrid": "continuous diffusion first, all tokens at once; then the doubtful ones are redrawn",
}


def _legend(walks: Sequence[Walk]) -> str:
    """Say what the paths are, and how steps and calls of the denoiser are counted."""
    names = {walk.name: walk.sampler.partition("@")[0] for walk in walks}
    items = [f"<li><b>{escape(n)}</b>: {PATHS[p]}.</li>" for n, p in names.items() if p in PATHS]
    return (
        f"<ul>{''.join(items)}</ul><p><small>The number after @ is the number of steps that was "
        "asked for; a last one decides what is left open. A step in which nothing is revealed asks "
        "the network nothing, so there can be fewer calls than steps; a continuous step asks it "
        "twice.</small></p>"
    )


def _snr_figure(walk: Walk) -> str:
    steps = brightness(walk.records)
    picture = heatmap(steps, label=f"SNR of every token along {walk.name}")
    caption = f"{walk.name} ({walk.sampler}): {len(steps) - 1} steps"
    return f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"


def _chart(walks: Sequence[Walk], key: str, title: str) -> str:
    series = {}
    for walk in walks:
        n = max(1, len(walk.records) - 1)
        series[walk.name] = [(i / n, float(r[key])) for i, r in enumerate(walk.records)]
    picture = lines(series, label=title, x_name="share of the path")
    return f"<figure>{picture}<figcaption>{escape(title)}</figcaption></figure>"


def _filled(asked: str, text: str) -> str:
    """Mark what was written into the gap."""
    before, _, rest = asked.partition("[")
    after = rest.partition("]")[2]
    middle = text[len(before) : len(text) - len(after)]
    return (
        f'<span class="text">{escape(before)}<b class="gap">{escape(middle)}</b>'
        f"{escape(after)}</span>"
    )


def _repair(repair: Repair) -> str:
    marked = []
    for was, sure, now in zip(repair.read, repair.confidence, repair.repaired, strict=True):
        if sure == 0:
            marked.append(f'<b class="gap">{escape(now)}</b>')
        elif was != now:
            marked.append(f'<s>{escape(was)}</s><b class="mended">{escape(now)}</b>')
        else:
            marked.append(escape(now))
    cells = heatmap(
        [list(repair.confidence), list(repair.posterior)],
        label="confidence of the reader above, of the model below",
        height=36,
    )
    return (
        f'<p>Read: <span class="text">{escape(repair.read)}</span><br>'
        f'Mended: <span class="text">{"".join(marked)}</span></p>'
        "<p>Green filled a gap, yellow replaced a letter that the reader was unsure of.</p>"
        f"<figure>{cells}<figcaption>How sure the reader was of each letter (above), and how sure "
        "the model is of what it put there (below): blue is certain.</figcaption></figure>"
    )
