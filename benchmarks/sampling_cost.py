"""Cost of sampling as ratios within one run, and sampling error against network calls."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch

from dsl.checkpoints import load
from dsl.core import Endpoints, Mask, Noisy, Rows, Streams, oracle, stream
from dsl.likelihoods import Mean
from dsl.models import DSLModel, ModelConfig
from dsl.samplers import Ancestral, State, last, sampler


@dataclass(frozen=True)
class Speed:
    """An optimised masked run against the plain loop."""

    steps: int
    forwards: int
    """Steps that reveal a token and therefore call the denoiser."""
    states: int
    seconds_plain: float
    """Mean time of a step with full converter and full head."""
    seconds_ours: float
    """Mean time of a call with endpoint lookup and the head at revealed rows only."""
    ratio_step: float
    ratio_run: float
    """Time of (steps + 1) plain calls relative to our calls."""
    stderr: float
    """Standard error of ratio_run over the states."""


@torch.no_grad()
def speed(
    *,
    length: int = 1024,
    vocab_size: int = 50_257,
    config: ModelConfig | None = None,
    states: int = 8,
    seed: int = 0,
) -> Iterator[str | Speed]:
    """Time the plain loop and ours at states along one MDLM run with T = L.

    The weights are random, because times do not depend on them. Progress is yielded as text.
    """
    torch.manual_seed(seed)
    model = DSLModel(config or ModelConfig(vocab_size, model_length=length)).eval()
    visited = list(_revealing(length, vocab_size, seed))
    chosen = [visited[round(i * (len(visited) - 1) / (states - 1))] for i in range(states)]
    model.requires_grad_(False)
    model(chosen[-1][0], at=chosen[-1][1])  # warm up; fills the endpoint table
    plain, ours = [], []
    for number, (ends, at) in enumerate(chosen, 1):
        z = ends.z(model.codebook, model.snr_max)
        model(ends, at=at)  # fills the table; a run does this once per token, not per step
        began = time.perf_counter()
        full = model(z)
        middle = time.perf_counter()
        rows = model(ends, at=at)
        ended = time.perf_counter()
        torch.testing.assert_close(rows, full[at], atol=1e-4, rtol=1e-4)
        plain.append(middle - began)
        ours.append(ended - middle)
        yield f"state {number} of {states}: {plain[-1]:.2f} s plain, {ours[-1]:.2f} s ours"
    runs = [(length + 1) * a / (len(visited) * b) for a, b in zip(plain, ours, strict=True)]
    yield Speed(
        steps=length,
        forwards=len(visited),
        states=states,
        seconds_plain=fmean(plain),
        seconds_ours=fmean(ours),
        ratio_step=fmean(plain) / fmean(ours),
        ratio_run=(length + 1) * fmean(plain) / (len(visited) * fmean(ours)),
        stderr=Mean.of(runs).stderr,
    )


def _revealing(length: int, vocab_size: int, seed: int) -> Iterator[tuple[Endpoints, Mask]]:
    """Yield the states of an MDLM run with random tokens that need a call, and the rows."""
    before = State.blank(1, length)
    for state in Ancestral(length).steps(
        _Uniform(vocab_size), before, generator=Streams.derive(seed, [0])
    ):
        at = before.masked & ~state.masked
        if at.any():
            yield before.endpoints, at
        before = state


class _Uniform:
    """A denoiser with uniform logits, which costs nothing."""

    device = torch.device("cpu")

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        assert at is not None
        return torch.zeros(int(at.sum()), self.vocab_size)


@dataclass(frozen=True)
class Overhead:
    """Time of a sampler relative to its denoiser calls."""

    sampler: str
    seconds: float
    seconds_denoising: float
    overhead: float
    """(seconds - seconds_denoising) / seconds_denoising."""


def overhead(name: str, *, b: int = 8, length: int = 128, seed: int = 0) -> Overhead:
    """Time a run and the denoiser calls in it, with a character model of 5M weights."""
    torch.manual_seed(seed)
    config = ModelConfig(
        27, codebook_dim=26, hidden_dim=256, n_blocks=6, n_heads=4, model_length=length
    )
    timed = _Timed(DSLModel(config).eval().requires_grad_(False))
    start = State.blank(b, length)
    last(sampler("mdlm@2"), timed, start, generator=Streams.derive(seed, range(b)))  # warm up
    timed.seconds = 0.0
    began = time.perf_counter()
    last(sampler(name), timed, start, generator=Streams.derive(seed, range(b)))
    seconds = time.perf_counter() - began
    return Overhead(name, seconds, timed.seconds, seconds / timed.seconds - 1)


class _Timed:
    """A denoiser that adds up the time of its calls."""

    def __init__(self, denoiser: DSLModel) -> None:
        self.denoiser, self.seconds = denoiser, 0.0
        self.vocab_size, self.device = denoiser.vocab_size, denoiser.device
        self.codebook, self.snr_max = denoiser.codebook.detach(), denoiser.snr_max

    def __call__(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        began = time.perf_counter()
        logits: Rows = self.denoiser(z, at=at)
        self.seconds += time.perf_counter() - began
        return logits


@dataclass(frozen=True)
class Pace:
    """Time of a sampler relative to `mdlm@T`, with the bundled model."""

    sampler: str
    nfe: float
    """Mean denoiser calls per text."""
    characters_per_second: float
    time: float
    """Mean ratio to the time of the reference in the same round."""
    stderr: float
    """Standard error of the ratio over the rounds."""


PACED = (
    "mdlm@64", "remdm-conf@64", "remdm-loop@64", "first-hitting@64", "dfm@64", "roar", "causal",
    "localize@64", "edm@32", "hybrid@16+32",
)  # fmt: skip
"""Samplers with about the same number of steps; the first is the reference."""


def pace(
    names: Sequence[str] = PACED, *, b: int = 16, length: int = 128, rounds: int = 4, seed: int = 0
) -> Iterator[str | Pace]:
    """Time all samplers in several rounds. Progress is yielded as text."""
    model = load()
    denoiser, start = model.denoiser, State.blank(b, length)
    last(sampler("mdlm@2"), denoiser, start, generator=Streams.derive(seed, range(b)))  # warm up
    seconds: dict[str, list[float]] = {name: [] for name in names}
    calls: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        yield f"round {number + 1} of {rounds}"
        texts = range(number * b, (number + 1) * b)
        for name in names:
            began = time.perf_counter()
            end = last(sampler(name), denoiser, start, generator=Streams.derive(seed, texts))
            seconds[name].append(time.perf_counter() - began)
            calls[name].append(float(end.nfe.double().mean()))
    for name in names:
        ratios = [a / b for a, b in zip(seconds[name], seconds[names[0]], strict=True)]
        ratio = Mean.of(ratios)
        speed = b * length / fmean(seconds[name])
        yield Pace(name, fmean(calls[name]), speed, ratio.mean, ratio.stderr)


@dataclass(frozen=True)
class Parallel:
    """The error of a parallel sampler at a number of steps."""

    sampler: str
    steps: int
    draws: int
    invalid: float
    """The share of sequences outside the support of the cyclic toy."""
    stderr: float
    nfe: float
    """Mean denoiser calls per sequence."""


def parallel(name: str, steps: int, *, draws: int = 20_000, seed: int = 0) -> Parallel:
    """Measure the error of revealing several tokens at once, on a known distribution."""
    toy = oracle.cyclic(7)
    walk = sampler(f"{name}@{steps}")
    end = last(walk, toy, State.blank(draws, toy.length), generator=stream(seed))
    share = float((toy.log_prob(end.tokens) == -torch.inf).double().mean())
    stderr = (share * (1 - share) / draws) ** 0.5
    return Parallel(name, steps, draws, share, stderr, float(end.nfe.double().mean()))
