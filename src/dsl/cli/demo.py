"""`dsl demo`: the cyclic toy, localizing under its exact denoiser."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from torch import Tensor

    from dsl.oracle import Enumerated


@dataclass(frozen=True)
class Demo:
    """Watch the cyclic toy localize, and check what was drawn against the truth."""

    size: int = 7
    """Letters in the toy: its data are all rotations of ABC…"""
    steps: int = 200
    """Euler-Maruyama steps from SNR 0 to 25."""
    draws: int = 2000
    """Sequences drawn; the first is shown while it localizes."""
    seed: int = 0
    """Where the random numbers start."""

    def __post_init__(self) -> None:
        if not 2 <= self.size <= 26:
            raise ValueError(f"--size must lie in 2 … 26, got {self.size}")
        if self.steps < 1 or self.draws < 1 or self.seed < 0:
            raise ValueError("--steps and --draws must be at least 1, and --seed at least 0")


def main(arguments: Sequence[str]) -> None:
    """Draw sequences along the shared SNR path, show one of them, compare all with the truth."""
    options = tyro.cli(Demo, args=list(arguments), prog="dsl demo")
    from dsl import oracle

    toy = oracle.cyclic(options.size)
    console = Console()
    console.print(
        f"\n[bold]Discrete stochastic localization[/] of a toy: every rotation of "
        f"[bold]{letters(range(options.size))}[/], equally likely.\n"
        "Every token starts at SNR 0, which is a mask, and is pulled to a letter by the exact "
        "denoiser, which is never told the SNR.\n"
    )
    started = time.monotonic()
    with Live(console=console, refresh_per_second=20) as live:
        for snr, logits in localize(toy, options):
            live.update(picture(snr, logits[0]))
            if console.is_terminal:
                time.sleep(max(0.0, 3.0 / options.steps))
    console.print(verdict(toy, logits.argmax(dim=-1)))
    console.print(f"{options.draws} sequences in {time.monotonic() - started:.1f} s\n")


def localize(toy: Enumerated, options: Demo) -> Iterator[tuple[float, Tensor]]:
    """Walk the unconditional SDE to SNR 25; yield the SNR and the token logits on the way."""
    from dsl.channel import advance
    from dsl.denoiser import posterior_mean
    from dsl.streams import stream

    generator = stream(options.seed)
    z = toy.codebook.new_zeros(options.draws, toy.length, toy.codebook.shape[1])
    d_snr = z.new_full(z.shape[:2], 25.0 / options.steps)
    logits = toy(z)
    yield 0.0, logits
    for step in range(1, options.steps + 1):
        z = advance(z, posterior_mean(logits, toy.codebook), d_snr, generator=generator)
        logits = toy(z)
        yield step * 25.0 / options.steps, logits


def picture(snr: float, logits: Tensor) -> Group:
    """Draw one state: each position's best letter, and how sure of it the posterior is."""
    confidence, best = logits.softmax(dim=-1).max(dim=-1)
    line = Text("  ")
    for letter, p in zip(letters(best.tolist()), confidence.tolist(), strict=True):
        line.append(
            letter if p > 0.5 else "_", "bold green" if p > 0.95 else "yellow" if p > 0.5 else "dim"
        )
        line.append(f" {p:4.0%}   ", "dim")
    return Group(Text(f"  SNR {snr:5.2f}"), line, Text(""))


def verdict(toy: Enumerated, drawn: Tensor) -> Table:
    """Count what was drawn and set the exact expectation beside it."""
    hits = (drawn.unsqueeze(1) == toy.sequences).all(dim=-1).sum(dim=0).tolist()
    n = len(drawn)
    expected = n / len(toy.sequences)
    error = (expected * (1 - expected / n)) ** 0.5
    table = Table("sequence", "drawn", "expected", title="What was drawn", title_justify="left")
    for sequence, count in zip(toy.sequences.tolist(), hits, strict=True):
        table.add_row(letters(sequence), str(count), f"{expected:.0f} ± {error:.0f}")
    table.add_row("anything else", str(n - sum(hits)), "0")
    return table


def letters(tokens: Sequence[int]) -> str:
    """Write tokens as letters."""
    return "".join(chr(ord("A") + token) for token in tokens)
