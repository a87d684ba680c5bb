"""`dsl reproduce toy`: sample the cyclic toy, and compare with the exact distribution."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dsl._util.validate import SEEDS, within
from dsl._util.words import counted
from dsl.cli.options import parse

if TYPE_CHECKING:
    from torch import Tensor

    from dsl.core import Enumerated


@dataclass(frozen=True)
class Options:
    """Sample the cyclic toy step by step, and compare the samples with the exact distribution.

    Example: dsl reproduce toy --size 7
    """

    size: int = 7
    """Number of letters; the data are all rotations of ABC…"""
    steps: int = 200
    """Euler-Maruyama steps from SNR 0 to 25."""
    draws: int = 2000
    """Number of sequences; the first is displayed at every step."""
    seed: int = 0
    """Random seed."""

    def check(self) -> None:
        """Reject invalid values."""
        within(self, size=(2, 26), steps=(1, 10**6), draws=(1, 10**5), seed=SEEDS)


def main(arguments: Sequence[str]) -> None:
    """Sample along the shared SNR path, display one sequence, compare all with the exact law."""
    options = parse(Options, "reproduce toy", arguments)
    from dsl.core import oracle, stream
    from dsl.samplers import State, sampler

    toy = oracle.cyclic(options.size)
    console = Console()
    console.print(
        f"\n[bold]Discrete stochastic localization[/] of a toy: every rotation of "
        f"[bold]{letters(range(options.size))}[/], equally likely.\n"
        "Every token starts at SNR 0, which is a mask, and is pulled to a letter by the exact "
        "denoiser, which does not see the SNR.\n"
    )
    began = time.monotonic()
    state = State.blank(options.draws, toy.length)
    path = sampler(f"localize@{options.steps}:snr_max=25,power=1")
    with Live(console=console, refresh_per_second=20) as live:
        for reached in path.steps(toy, state, generator=stream(options.seed)):
            state = reached
            if state.z is not None and state.snr is not None:
                live.update(picture(float(state.snr[0, 0]), toy(state.z[:1])[0]))
            if console.is_terminal:
                time.sleep(3.0 / options.steps)
    console.print(verdict(toy, state.tokens))
    console.print(f"{counted(options.draws, 'sequence')} in {time.monotonic() - began:.1f} s\n")


def picture(snr: float, logits: Tensor) -> Group:
    """Draw one state: the most probable letter per position, with its posterior probability."""
    confidence, best = logits.softmax(dim=-1).max(dim=-1)
    line = Text("  ")
    for letter, p in zip(letters(best.tolist()), confidence.tolist(), strict=True):
        line.append(
            letter if p > 0.5 else "_", "bold green" if p > 0.95 else "yellow" if p > 0.5 else "dim"
        )
        line.append(f" {p:4.0%}   ", "dim")
    return Group(Text(f"  SNR {snr:5.2f}"), line, Text(""))


def verdict(toy: Enumerated, drawn: Tensor) -> Table:
    """Count the samples next to the exact expectation."""
    hits = (drawn.unsqueeze(1) == toy.sequences).all(dim=-1).sum(dim=0).tolist()
    n = len(drawn)
    expected = n / len(toy.sequences)
    error = (expected * (1 - expected / n)) ** 0.5
    table = Table("sequence", "drawn", "expected", title="Samples", title_justify="left")
    for sequence, count in zip(toy.sequences.tolist(), hits, strict=True):
        table.add_row(letters(sequence), str(count), f"{expected:.0f} ± {error:.0f}")
    table.add_row("anything else", str(n - sum(hits)), "0")
    return table


def letters(tokens: Sequence[int]) -> str:
    """Write tokens as letters."""
    return "".join(chr(ord("A") + token) for token in tokens)
