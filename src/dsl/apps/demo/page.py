"""The page of `dsl demo`, with its pictures and tables inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from dsl._util import html
from dsl.apps.demo.charts import heat_map, lines

PATHS = {
    "mdlm": "masked diffusion: every token is revealed once, at a random step",
    "remdm-loop": "masked diffusion with remasking: some tokens are masked and revealed again",
    "roar": "random-order autoregressive: one token at a time, in a random order",
    "causal": "left to right, one token at a time",
    "hybrid": "continuous diffusion of all tokens first; then the least certain are redrawn",
}


@dataclass(frozen=True)
class Walk:
    """One text along one path, with a record of every step."""

    name: str
    sampler: str
    text: str
    nfe: int
    seconds: float
    bits: float
    """Bits per token of the text: the ROAR estimate of the same model."""
    bits_stderr: float
    records: Sequence[Mapping[str, Any]]


def page(
    model: str,
    walks: Sequence[Walk],
    fills: Sequence[tuple[str, str]],
    corrected: str,
    seed: int,
) -> str:
    """Return the page: applications first, then the paths behind them.

    Args:
        model: The names of the models.
        walks: One text along every path.
        fills: Texts with gaps, and the same filled.
        corrected: HTML that shows a corrected text.
        seed: The random seed.
    """
    body = [
        "<p>Small language models at work. They do not write from left to right. Each token has "
        "its own signal-to-noise ratio (SNR), from 0 (unknown) to 100 (decided), and tokens can "
        "be at any level in any order. So one network corrects a text with doubtful letters, "
        "fills gaps, and writes along many different paths.</p>",
        f'<p class="soft">Models {escape(model)}, seed {seed}. The letter model knows English '
        "words; the story model writes for small children.</p>",
        "<h2>Correcting a noisy text</h2>",
        "<p>A reader of a damaged page was sure of most letters, doubted some, and could not read "
        "others at all (_). The model weighs the reader's confidence in every letter against "
        "its own knowledge of English.</p>",
        corrected,
        "<h2>Filling a gap</h2>",
        "<p>The text around the gap is fixed; the underlined part was drawn.</p>",
        "<ul>" + "".join(f"<li>{_filled(*fill)}</li>" for fill in fills) + "</ul>",
        "<h2>One network, five paths</h2>",
        "<p>The network writes a text along each path, from one seed and without a prompt.</p>",
        _table(walks),
        *map(_path, walks),
        "<h2>Confidence and remasking</h2>",
        _charts(walks),
    ]
    return html.page("Discrete stochastic localization", "\n".join(body))


def _filled(asked: str, text: str) -> str:
    """Mark the text in the gap."""
    before, _, rest = asked.partition("[")
    after = rest.partition("]")[2]
    middle = text[len(before) : len(text) - len(after)]
    return f"{escape(before)}<ins>{escape(middle)}</ins>{escape(after)}"


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
        "<caption>The cost of each path. Bits per token is the model's own estimate (ROAR) for "
        "its text: low means likely, which is not the same as good.</caption>"
        f'<thead><tr><th scope="col">path</th>{columns}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        "<p><small>The number after @ is the number of steps; a last step decides the remaining "
        "tokens. A step that reveals nothing does not call the network, so there can be fewer "
        "calls than steps; a continuous step calls it twice.</small></p>"
        "<p>In the pictures a column is a token and a row is a step, from top to bottom: white is "
        "SNR 0, yellow is in between, deep blue is a decided token.</p>"
    )


def _path(walk: Walk) -> str:
    """Show one path: a description, its text, and the SNR of each token at each step."""
    kind = PATHS.get(walk.sampler.partition("@")[0])
    steps, positions = len(walk.records) - 1, len(walk.records[0]["snr"])
    drawn = heat_map(
        walk.records,
        letters=walk.text if len(walk.text) == positions else "",  # longer tokens do not fit
        title=f"SNR of every token along {walk.name}",
        description=f"{steps} steps down, {positions} positions across.",
    )
    name, about = escape(walk.name), f"<p>{kind[0].upper()}{kind[1:]}.</p>" if kind else ""
    return (
        f'<h3>{name}</h3>{about}<p class="text">{escape(walk.text)}</p>'
        '<figure><div class="scroll wide" tabindex="0" role="region" '
        f'aria-label="Picture of {name}">{drawn}</div><figcaption>{name} '
        f"({escape(walk.sampler)}): the SNR of every token, {steps} steps.</figcaption></figure>"
    )


def _charts(walks: Sequence[Walk]) -> str:
    sharp = _chart(
        walks,
        "mean_max_prob",
        "Sharpness",
        "largest probability, mean over positions",
        "The confidence of the network: at 1 it is certain of every token.",
    )
    work = _chart(
        walks,
        "remasks_per_token",
        "Remask workload",
        "remasks per token",
        "The number of times a token was masked again, on average.",
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
