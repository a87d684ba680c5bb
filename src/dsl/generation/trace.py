"""The record of a run: statistics of every step for each sequence (C.4, D.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.core.denoiser import Denoiser, Endpoints
from dsl.core.types import MASK, Noisy
from dsl.samplers.state import State

CHUNK_ROWS = 256
"""Rows whose probabilities are in memory at a time."""


@dataclass(frozen=True)
class Sharpness:
    """Means over the positions of each sequence."""

    max_prob: Float[Tensor, "b"]
    nucleus: Float[Tensor, "b"]
    """k_t, the number of most likely tokens whose total probability reaches top_p."""
    entropy: Float[Tensor, "b"]
    """H_t, in nats."""

    @property
    def uncertainty(self) -> Float[Tensor, "b"]:
        """u_t = 1 - the mean largest probability."""
        return 1 - self.max_prob


@torch.no_grad()
def sharpness(denoiser: Denoiser, z: Noisy | Endpoints, *, top_p: float = 0.9) -> Sharpness:
    """Measure the posterior at every position of a state, a chunk of rows at a time.

    It needs the logits of every row, which samplers do not compute.
    """
    logits = denoiser(z)
    b, length, v = logits.shape
    parts = [_rows(rows, top_p) for rows in logits.reshape(-1, v).split(CHUNK_ROWS)]
    columns = torch.cat(parts, dim=1).reshape(3, b, length).mean(dim=-1)
    return Sharpness(*columns.unbind())


def _rows(logits: Float[Tensor, "n v"], top_p: float) -> Float[Tensor, "three n"]:
    p = logits.double().softmax(dim=-1)
    ordered = p.sort(dim=-1, descending=True).values
    nucleus = (ordered.cumsum(dim=-1) - ordered < top_p).sum(dim=-1)
    entropy = torch.special.entr(p).sum(dim=-1)
    return torch.stack([ordered[:, 0], nucleus.double(), entropy])


REVEALED = 100.0
"""The SNR recorded for a known token if the network has no SNRs: γ_max of DSL's models."""


@dataclass
class Trace:
    """Follow a sampler and keep one record for each step and sequence.

    Three counters of rewrites per token are kept, because the paper defines one and reports
    another: remask events, changes from one token to another (ignoring masks between them), and
    every change of symbol after the first step, [MASK] counted as a symbol (the definition).
    """

    denoiser: Any
    """The network that is sampled from."""
    measure_sharpness: bool = True
    """Compute the posterior at all positions after every step; not counted as NFE."""
    top_p: float = 0.9
    records: list[dict[str, Any]] = field(default_factory=list)

    def follow(
        self, states: Iterable[State], start: State, *, indices: Iterable[int] | None = None
    ) -> Iterator[State]:
        """Yield the states unchanged and record each against the one before."""
        names = list(range(len(start.tokens)) if indices is None else indices)
        counters = Rewrites.of(start)
        self._record(names, 0, start, start, counters)
        before = start
        for number, state in enumerate(states, 1):
            counters = counters.after(before, state)
            self._record(names, number, before, state, counters)
            before = state
            yield state

    def _record(
        self, names: list[int], number: int, before: State, state: State, counters: Rewrites
    ) -> None:
        length = state.tokens.shape[1]
        was, now = before.masked, state.masked
        columns: dict[str, Tensor] = {
            "masked_ratio": now.double().mean(dim=1),
            "revealed": (was & ~now).sum(dim=1) / length,
            "remasked": (~was & now).sum(dim=1) / length,
            "changed": (before.tokens != state.tokens).sum(dim=1) / length,
            "remasks_per_token": counters.remasks / length,
            "token_changes_per_token": counters.token_changes / length,
            "rewrites_per_token": counters.rewrites / length,
            "nfe": state.nfe,
        }
        if self.measure_sharpness:
            z = state.endpoints if state.z is None else state.z
            sharp = sharpness(self.denoiser, z, top_p=self.top_p)
            columns |= {
                "mean_max_prob": sharp.max_prob,
                "nucleus_size": sharp.nucleus,
                "uncertainty": sharp.uncertainty,
                "entropy": sharp.entropy,
            }
        levels = state.levels(getattr(self.denoiser, "snr_max", REVEALED))
        for row, name in enumerate(names):
            record: dict[str, Any] = {"index": name, "step": number, "stage": state.stage}
            record |= {key: column[row].item() for key, column in columns.items()}
            record["snr"] = [round(level, 4) for level in levels[row].tolist()]
            self.records.append(record)


@dataclass(frozen=True)
class Rewrites:
    """Running counts of token changes in each sequence."""

    seen: Int[Tensor, "b l"]
    """The last token each position has held; MASK if none."""
    remasks: Int[Tensor, "b"]
    token_changes: Int[Tensor, "b"]
    rewrites: Int[Tensor, "b"]
    steps: int = 0

    @classmethod
    def of(cls, state: State) -> Rewrites:
        """Return counts of zero."""
        zero = torch.zeros_like(state.nfe)
        return cls(state.tokens, zero, zero, zero)

    def after(self, before: State, state: State) -> Rewrites:
        """Return the counts after one more step."""
        was, now = before.tokens, state.tokens
        visible = now != MASK
        changed = visible & (self.seen != MASK) & (now != self.seen)
        return Rewrites(
            seen=torch.where(visible, now, self.seen),
            remasks=self.remasks + ((was != MASK) & ~visible).sum(dim=1),
            token_changes=self.token_changes + changed.sum(dim=1),
            rewrites=self.rewrites + (was != now).sum(dim=1) * (self.steps > 0),
            steps=self.steps + 1,
        )
