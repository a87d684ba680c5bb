"""An animation of text being written: one network, several paths through SNR space."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import torch

from dsl.checkpoints import Model
from dsl.core import Continuous
from dsl.generation import SampleOptions, completion
from dsl.samplers import State

LETTER, LINE, TOP, WIDTH = 9.6, 30.0, 30.0, 860
"""Sizes in pixels: a monospace letter, a line, a lane's title, the picture."""
SECONDS, HOLD = 9.0, 0.3
"""Length of one cycle, and the share of it that shows the finished text."""
SHADES = ((255, 255, 255), (253, 214, 120), (38, 70, 150))
"""Colours of SNR 0, the middle and the top."""


@dataclass(frozen=True)
class Cell:
    """One token in one frame."""

    text: str
    """The decided token, or the most probable one."""
    level: float
    """log(1 + γ) / log(1 + γ_max)."""
    probability: float
    """How sure the network is of the text; 0 for a mask, 1 for a decided token."""


@dataclass(frozen=True)
class Lane:
    """A path: its title, and the tokens of every frame."""

    title: str
    frames: Sequence[Sequence[Cell]]


@torch.no_grad()
def lane(model: Model, sampler: str, *, prompt: str, length: int, seed: int) -> Lane:
    """Draw one text and keep every state on its path.

    Args:
        model: A DSL model.
        sampler: The sampler's short form.
        prompt: The beginning of the text.
        length: Tokens of the text.
        seed: Random seed.
    """
    if not model.can_answer(Continuous):
        raise ValueError(f"the animation needs a DSL model, {model.name} is a {model.family.name}")
    options = SampleOptions(sampler=sampler, prompt=prompt, length=length, seed=seed)
    batch = next(completion(model, options).batches())
    states = [batch.start, *batch.states]
    soft = any(state.z is not None for state in states)
    what = "all tokens come into focus together" if soft else "each token is a mask or a word"
    return Lane(
        f"{sampler.partition(':')[0]}: {what}",
        [_frame(model, batch.denoiser, state) for state in states],
    )


def _frame(model: Model, denoiser: Continuous, state: State) -> list[Cell]:
    top = math.log1p(denoiser.snr_max)
    levels = (state.levels(denoiser.snr_max)[0].double().log1p() / top).clamp(max=1).tolist()
    tokens, p = state.tokens[0].tolist(), [1.0] * state.tokens.shape[1]
    if state.z is None:
        p = (~state.masked[0]).double().tolist()
    else:
        best = denoiser(state.z)[0].double().softmax(dim=-1).max(dim=-1)
        decided = ~state.masked[0]
        tokens = torch.where(decided, state.tokens[0], best.indices).tolist()
        p = torch.where(decided, 1.0, best.values).tolist()
    return [
        Cell(_written(model, token) if sure else "", level, sure)
        for token, level, sure in zip(tokens, levels, p, strict=True)
    ]


def _written(model: Model, token: int) -> str:
    """Spell a token with its leading space, which decoding it alone would drop."""
    return model.pieces[token].replace("\n", " ")


def animation(lanes: Sequence[Lane]) -> str:
    """Draw all lanes as one animated SVG; without animation it shows the finished texts."""
    endings = " ".join("".join(cell.text for cell in lane.frames[-1]) for lane in lanes)
    parts, y = [], 8.0
    for each in lanes:
        drawn, height = _lane(each)
        parts.append(f'<g transform="translate(10 {y:g})">{drawn}</g>')
        y += height + 14
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {y:g}" '
        f'width="{WIDTH}" height="{y:g}">'
        f"<title>One network writes along {len(lanes)} paths</title>"
        f"<desc>White is a mask, yellow is soft evidence, blue is a decided token.{escape(endings)}"
        "</desc>"
        f'<rect width="100%" height="100%" rx="8" fill="#fbfaf7"/>{"".join(parts)}</svg>\n'
    )


def _lane(lane: Lane) -> tuple[str, float]:
    places = _layout([cell.text for cell in lane.frames[-1]])
    ends = [(1 - HOLD) * i / (len(lane.frames) - 1) for i in range(len(lane.frames))]
    parts = [
        f'<text y="17" font-family="sans-serif" font-size="15" fill="#333">'
        f"{escape(lane.title)}</text>"
    ]
    for number, (x, line, width) in enumerate(places):
        cells = [frame[number] for frame in lane.frames]
        if width:
            parts.append(_cell(cells, ends, x, TOP + line * LINE, width))
    return "".join(parts), TOP + LINE * (max(line for _, line, _ in places) + 1)


def _layout(texts: Sequence[str]) -> list[tuple[float, int, int]]:
    """Place tokens in lines, breaking at spaces: x, line and letters of each."""
    room = int((WIDTH - 20) / LETTER)
    places: list[tuple[float, int, int]] = []
    column = line = 0
    for number, text in enumerate(texts):
        word = text
        for after in texts[number + 1 :]:  # a token without a space continues its word
            if after.startswith(" "):
                break
            word += after
        if text.startswith(" ") and column + len(word) > room:
            column, line = 0, line + 1
        places.append((column * LETTER, line, len(text)))
        column += len(text)
    return places


def _cell(cells: Sequence[Cell], times: Sequence[float], x: float, y: float, width: int) -> str:
    """Draw a token: a box that takes the colour of its SNR, and every text it ever shows."""
    fills = [_shade(cell.level) for cell in cells]
    parts = [
        f'<rect x="{x + 0.5:.1f}" y="{y:g}" width="{width * LETTER - 1:.1f}" height="{LINE - 6:g}" '
        f'rx="3" fill="{fills[-1]}" stroke="#d8d4c8">{_animate("fill", fills, times)}</rect>'
    ]
    shown = [(cell.text[:width], "#ffffff" if cell.level > 0.7 else "#222222") for cell in cells]
    for text, ink in dict.fromkeys(shown):
        opacity = [
            f"{_opacity(cell):g}" if now == (text, ink) else "0"
            for cell, now in zip(cells, shown, strict=True)
        ]
        if text.strip():
            parts.append(
                f'<text x="{x:.1f}" y="{y + 17:g}" font-family="monospace" font-size="16" '
                f'textLength="{len(text) * LETTER:.1f}" xml:space="preserve" fill="{ink}" '
                f'opacity="{opacity[-1]}">{escape(text)}'
                f"{_animate('opacity', opacity, times)}</text>"
            )
    return "".join(parts)


def _opacity(cell: Cell) -> float:
    """Fade uncertain tokens. Tenths are enough, and keep the file small."""
    return round(0.15 + 0.85 * cell.probability, 1)


def _animate(attribute: str, values: Sequence[str], times: Sequence[float]) -> str:
    """Write the changes of an attribute over one cycle; nothing if it never changes."""
    changes = [(times[0], values[0])]
    for (_, before), (time, value) in pairwise(zip(times, values, strict=True)):
        if value != before:
            changes.append((time, value))
    if len(changes) == 1:
        return ""
    return (
        f'<animate attributeName="{attribute}" calcMode="discrete" dur="{SECONDS:g}s" '
        f'repeatCount="indefinite" values="{";".join(value for _, value in changes)}" '
        f'keyTimes="{";".join(f"{time:.3f}" for time, _ in changes)}"/>'
    )


def _shade(level: float) -> str:
    level = min(1.0, max(0.0, level))
    begin, end, t = (
        (SHADES[0], SHADES[1], 2 * level) if level < 0.5 else (SHADES[1], SHADES[2], 2 * level - 1)
    )
    red, green, blue = (round((a + (b - a) * t) / 5) * 5 for a, b in zip(begin, end, strict=True))
    return f"rgb({red},{green},{blue})"
