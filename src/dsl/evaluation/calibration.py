"""Calibration: reliability, ECE, risk against coverage, temperature (E.2).

Everything is measured under teacher forcing: held-out text is corrupted to a given level, and the
posterior at every position is compared with the true token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dsl.checkpoints.loading import Model, load
from dsl.core.denoiser import Denoiser, Endpoints, at_once, require_logits
from dsl.core.streams import Streams
from dsl.core.types import MASK, Tokens
from dsl.families.levels import Level, Unpadded
from dsl.likelihoods.estimate import deviation


@torch.no_grad()
def leave_one_out(denoiser: Denoiser, tokens: Tokens) -> Float[Tensor, "b l"]:
    """Return P(token | all other tokens, evidence) of every position, one call per position."""
    columns = []
    for i in range(tokens.shape[1]):
        at = torch.zeros_like(tokens, dtype=torch.bool)
        at[:, i] = True
        p = denoiser(Endpoints(tokens.masked_fill(at, MASK)), at=at).double().softmax(dim=-1)
        columns.append(p.gather(1, tokens[:, i : i + 1]))
    return torch.cat(columns, dim=1)


TEMPERATURES = torch.logspace(-1, 1, 81, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Answers:
    """The most likely token at every corrupted position."""

    confidence: Float[Tensor, "n"]
    correct: Bool[Tensor, "n"]
    sequence: Int[Tensor, "n"]
    """The sequence of each position; positions of one sequence are not independent."""
    nats: Float[Tensor, "n"]
    """-log p of the true token."""


@dataclass(frozen=True)
class Reliability:
    """Confidence against accuracy in equal bins of confidence."""

    confidence: tuple[float | None, ...]
    """The mean in each bin; None where it is empty."""
    accuracy: tuple[float | None, ...]
    count: tuple[int, ...]

    @property
    def ece(self) -> float:
        """The expected calibration error: the mean distance of the two, weighted by count."""
        total = sum(self.count)
        bins = zip(self.confidence, self.accuracy, self.count, strict=True)
        return sum(n * abs(c - a) for c, a, n in bins if c is not None and a is not None) / total


def reliability(
    confidence: Float[Tensor, "n"], correct: Bool[Tensor, "n"], *, bins: int = 15
) -> Reliability:
    """Sort answers into bins ((i-1)/bins, i/bins] of confidence."""
    if not len(confidence):
        raise ValueError("calibration needs at least one answer, got none")
    index = _bin(confidence, bins)
    count = torch.bincount(index, minlength=bins)
    sums = [
        torch.bincount(index, weights=values.double(), minlength=bins)
        for values in (confidence, correct)
    ]
    means = [
        [float(t / c) if c else None for t, c in zip(total, count, strict=True)] for total in sums
    ]
    return Reliability(tuple(means[0]), tuple(means[1]), tuple(count.tolist()))


def _bin(confidence: Float[Tensor, "n"], bins: int) -> Int[Tensor, "n"]:
    return (confidence.double() * bins).ceil().long().clamp(1, bins) - 1


@dataclass(frozen=True)
class RiskCoverage:
    """The error rate among the most confident answers, by the share that is answered."""

    coverage: tuple[float, ...]
    risk: tuple[float, ...]

    @property
    def area(self) -> float:
        """The mean risk over all coverages: 0 is best."""
        return sum(self.risk) / len(self.risk)


def risk_coverage(
    confidence: Float[Tensor, "n"], correct: Bool[Tensor, "n"], *, points: int = 20
) -> RiskCoverage:
    """Return the error rate of the most confident answers, for several shares of answers."""
    order = confidence.argsort(descending=True, stable=True)
    wrong = (~correct[order]).double().cumsum(dim=0)
    n = len(order)
    sizes = [max(1, round(n * (i + 1) / points)) for i in range(points)]
    return RiskCoverage(
        tuple(size / n for size in sizes), tuple(float(wrong[s - 1]) / s for s in sizes)
    )


def logits_at(
    network: Any, tokens: Tokens, level: Level, *, generator: Streams
) -> Iterator[tuple[Float[Tensor, "n v"], Int[Tensor, "n"], Int[Tensor, "n"]]]:
    """Corrupt sequences; yield the logits, true token and sequence of each corrupted position."""
    for part in torch.arange(len(tokens)).split(at_once(network, tokens.shape[1])):
        rows = tokens[part]
        with torch.no_grad():
            logits, at = level.ask(network, rows, generator=generator.take(part.tolist()))
        require_logits(logits)
        yield logits, rows[at], part.to(rows.device).unsqueeze(1).expand_as(rows)[at]


def answers(
    network: Any,
    tokens: Tokens,
    level: Level,
    *,
    generator: Streams,
    temperature: float = 1.0,
) -> Answers:
    """Return the most likely token at every corrupted position, at a temperature."""
    parts = []
    for logits, wanted, sequence in logits_at(network, tokens, level, generator=generator):
        log_p = (logits.double() / temperature).log_softmax(dim=-1)
        best, guess = log_p.max(dim=-1)
        nats = -log_p.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
        parts.append((best.exp(), guess == wanted, sequence, nats))
    return Answers(*(torch.cat(column).cpu() for column in zip(*parts, strict=True)))


def best_temperature(network: Any, tokens: Tokens, level: Level, *, generator: Streams) -> float:
    """Return the temperature with the lowest cross-entropy, by grid search."""
    total = torch.zeros(len(TEMPERATURES), dtype=torch.float64)
    for logits, wanted, _ in logits_at(network, tokens, level, generator=generator):
        for i, temperature in enumerate(TEMPERATURES):
            scaled = logits.double() / temperature
            total[i] += torch.nn.functional.cross_entropy(scaled, wanted, reduction="sum").cpu()
    return float(TEMPERATURES[int(total.argmin())])


@dataclass(frozen=True)
class Calibration:
    """Calibration at one level."""

    level: str | float
    """Its name, or its SNR."""
    positions: int
    accuracy: float
    confidence: float
    bits: float
    """Cross-entropy, in bits per position."""
    ece: float
    ece_stderr: float
    """By bootstrap over sequences."""
    temperature: float
    """Fitted on other sequences than those that are evaluated."""
    ece_after: float
    """At that temperature."""
    reliability: Reliability
    risk_coverage: RiskCoverage


def calibrate_at(
    network: Any,
    tokens: Tokens,
    level: Level,
    *,
    seed: int = 0,
    bins: int = 15,
    resamples: int = 200,
) -> Calibration:
    """Evaluate half of the sequences at T = 1 and at the temperature fitted on the other half."""
    if len(tokens) < 4:
        raise ValueError(
            "calibration fits a temperature on half of the sequences and needs at least 4, "
            f"got {len(tokens)}"
        )
    half = len(tokens) // 2
    device = tokens.device
    fit = Streams.derive(seed, range(half), device=device)
    temperature = best_temperature(network, tokens[:half], level, generator=fit)

    def judged(at: float) -> Answers:
        streams = Streams.derive(seed, range(half, len(tokens)), device=device)
        return answers(network, tokens[half:], level, generator=streams, temperature=at)

    plain, after = judged(1.0), judged(temperature)
    found = reliability(plain.confidence, plain.correct, bins=bins)
    return Calibration(
        level.label,
        len(plain.confidence),
        float(plain.correct.double().mean()),
        float(plain.confidence.mean()),
        float(plain.nats.mean()) / math.log(2),
        found.ece,
        _bootstrap(plain, bins, resamples, seed),
        temperature,
        reliability(after.confidence, after.correct, bins=bins).ece,
        found,
        risk_coverage(plain.confidence, plain.correct),
    )


def levels(model: Model, snrs: Sequence[float] = ()) -> Sequence[Level]:
    """Return the corruption levels of given SNRs, or the family's own levels."""
    family, network = model.family, model.denoiser
    return family.levels_at(network, snrs) if snrs else family.levels(network)


def calibrate(
    model: str | Path | Model,
    tokens: Tokens,
    *,
    snrs: Sequence[float] = (),
    seed: int = 0,
    bins: int = 15,
    on_level: Callable[[Calibration], None] | None = None,
) -> list[Calibration]:
    """Measure the calibration of a model at every level.

    Args:
        model: A model, or its name.
        tokens: Blocks of held-out text. Half of them fit a temperature, the others are evaluated.
        snrs: SNRs to corrupt to. Default: the family's levels.
        seed: Random seed.
        bins: Number of confidence bins.
        on_level: Called with the result of every level.
    """
    model = model if isinstance(model, Model) else load(model)
    placed = tokens.to(model.device)
    found = []
    for level in levels(model, snrs):
        asked = Unpadded(level, model.ends) if model.documents else level
        found.append(calibrate_at(model.denoiser, placed, asked, seed=seed, bins=bins))
        if on_level:
            on_level(found[-1])
    return found


def _bootstrap(found: Answers, bins: int, resamples: int, seed: int) -> float:
    """Return the deviation of the ECE over resampled sequences.

    Whole sequences are resampled, because the positions of one depend on each other.
    """
    generator = torch.Generator().manual_seed(seed)
    names, sequence = found.sequence.unique(return_inverse=True)
    n = len(names)
    cell = sequence * bins + _bin(found.confidence, bins)
    gap = torch.bincount(cell, (found.confidence - found.correct.double()).double(), n * bins)
    size = torch.bincount(sequence, minlength=n).double()
    values = []
    for _ in range(resamples):
        drawn = torch.randint(n, (n,), generator=generator)
        gaps = gap.view(n, bins)[drawn].sum(dim=0)
        values.append(float(gaps.abs().sum() / size[drawn].sum()))
    return deviation(values)
