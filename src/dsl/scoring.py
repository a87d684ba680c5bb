"""Score text: every likelihood estimator with its error, and the audit between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from dsl.baselines.mdlm import MdlmModel
from dsl.data.blocks import cut
from dsl.denoiser import Clocked, Denoiser, at_once
from dsl.evidence import Known, Observation, Unknown, evidence, given
from dsl.evidence import likelihood as likelihood_of
from dsl.likelihoods.audit import Audit, audit
from dsl.likelihoods.chain_rule import Autoregressive, ChainRule
from dsl.likelihoods.estimate import Estimate, Likelihood, Mean
from dsl.likelihoods.path_integral import PathIntegral, choose_cutoff
from dsl.likelihoods.roar import Roar
from dsl.likelihoods.vdm_bound import VdmBound
from dsl.loading import Model, Network, load
from dsl.path import Tabulated
from dsl.streams import Streams, stream
from dsl.types import Tokens

CONTOURS = ("shared", "sequential", "random-order")
LEAST_BUDGET = 4

Validate = Callable[[Network], dict[str, float]]
"""Measures a network while it is being trained."""


def estimators(
    denoiser: Denoiser,
    budget: int,
    cutoff: float,
    *,
    table: Tabulated | None = None,
    batch_size: int = 256,
) -> dict[str, Likelihood]:
    """Build the estimators a model has, within a budget of denoiser calls for each sequence."""
    if budget < LEAST_BUDGET:
        raise ValueError(
            f"the budget must be at least {LEAST_BUDGET} denoiser calls a sequence "
            f"(two replicates of a draw and a read-out), got {budget}"
        )
    if isinstance(denoiser, Autoregressive):
        return {"chain-rule": ChainRule(batch_size)}
    replicates = min(16, budget // 2)
    draws = budget // replicates
    if isinstance(denoiser, Clocked):
        return {"vdm-bound": VdmBound(replicates, draws - 1, batch_size=batch_size)}
    built: dict[str, Likelihood] = {"roar": Roar(replicates, draws, batch_size)}
    if isinstance(denoiser, MdlmModel):
        return built  # it has no states between mask and token to integrate over
    for contour in CONTOURS:
        built[contour] = PathIntegral(
            contour,  # type: ignore[arg-type]
            cutoff,
            replicates,
            draws - 1,
            batch_size=batch_size,
        )
    if table is not None:
        built["tabulated"] = PathIntegral(
            table, cutoff, replicates, draws - 1, batch_size=batch_size
        )
    return built


def continuous(denoiser: Denoiser) -> bool:
    """Whether a model has states between mask and token that need no clock."""
    return not isinstance(denoiser, MdlmModel | Autoregressive | Clocked)


@dataclass(frozen=True, eq=False)
class Report:
    """What the estimators say about a corpus."""

    model: Model
    tokens: Tokens
    estimates: Mapping[str, Estimate]
    cutoff: float
    span: tuple[int, int] | None = None
    """The token positions that were scored, given the others; None is all."""

    @property
    def scored(self) -> int:
        """The number of tokens that were scored in each block."""
        return self.tokens.shape[1] if self.span is None else self.span[1] - self.span[0]

    @property
    def audit(self) -> Audit:
        """The spread between the estimators, in nats for each token."""
        return audit(self.estimates)

    def bits_per_token(self, name: str) -> Mean:
        """Average over the corpus."""
        estimate = self.estimates[name]
        scale = self.scored * math.log(2)
        return Mean.of(estimate.nats / scale, estimate.stderr / scale)

    def bits_per_character(self, name: str, *, specials: bool = True) -> Mean:
        """Charge the text's characters with all bits, or with those of ordinary tokens only."""
        estimate = self.estimates[name]
        ordinary = torch.tensor([token not in self.model.specials for token in range(self._v)])
        counted = torch.ones_like(self.tokens) if specials else ordinary[self.tokens].long()
        nats = (estimate.tokens * counted).sum(dim=1)
        scale = self.characters / len(self.tokens) * math.log(2)
        return Mean.of(nats / scale, estimate.stderr / scale)

    @property
    def characters(self) -> int:
        """The characters that were scored, special tokens left out."""
        begin, end = self.span or (0, self.tokens.shape[1])
        rows = self.tokens[:, begin:end].tolist()
        ordinary = [[t for t in row if t not in self.model.specials] for row in rows]
        return sum(len(self.model.decode(row)) for row in ordinary)

    @property
    def _v(self) -> int:
        return int(self.model.denoiser.codebook.shape[0])

    def to_dict(self) -> dict[str, Any]:
        """Return every number with its standard error, ready for JSON."""
        sections = {name: self._section(name) for name in self.estimates}
        result: dict[str, Any] = {
            "model": self.model.name,
            "sequences": len(self.tokens),
            "length": self.tokens.shape[1],
        }
        for name in ("chain-rule", "vdm-bound", "roar"):
            if name in sections:
                result[name.replace("-", "_")] = sections.pop(name)
        if sections:
            result |= {"cutoff": self.cutoff, "path_integral": sections}
        if sections and len(self.estimates) > 1:
            found = self.audit
            result["audit"] = {
                "spread": found.spread / math.log(2),
                "stderr": found.stderr / math.log(2),
                "z": found.z,
                "between": list(found.between),
            }
        return result

    def _section(self, name: str) -> dict[str, float]:
        bits = self.bits_per_token(name)
        section = {
            "bits_per_token": bits.mean,
            "stderr": bits.stderr,
            "nats_per_token": bits.mean * math.log(2),
            "nats_per_sequence": bits.mean * math.log(2) * self.scored,
        }
        if self.model.tokenizer is not None:
            characters = self.bits_per_character(name)
            section |= {
                "bits_per_character": characters.mean,
                "bits_per_character_stderr": characters.stderr,
                "bits_per_character_without_specials": self.bits_per_character(
                    name, specials=False
                ).mean,
            }
        return section


def score(
    model: Model,
    tokens: Tokens,
    *,
    indices: Sequence[int] | None = None,
    budget: int = 64,
    cutoff: float | None = None,
    validation: Int[Tensor, "n l"] | None = None,
    table: Tabulated | None = None,
    seed: int = 0,
    only: Sequence[str] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Estimate the likelihood of blocks; `indices` are their places in the whole corpus.

    Γ, if not given, is chosen once on the validation blocks, or on the scored ones if there are
    no others.
    """
    device = model.denoiser.codebook.device
    model.require_length(tokens.shape[1])
    names = range(len(tokens)) if indices is None else indices
    estimators(
        model.denoiser, budget, 1.0
    )  # a budget that is too small is refused before any forward
    if cutoff is None and not continuous(model.denoiser):
        cutoff = math.inf
    if cutoff is None:
        held_out = (tokens if validation is None else validation)[:16].to(device)
        cutoff = choose_cutoff(
            model.denoiser,
            held_out,
            generator=Streams.derive(seed, range(len(held_out)), device=device),
        )
    if table is not None:
        table = Tabulated(table.times.to(device), table.snr.to(device))
    d, length = model.denoiser.codebook.shape[1], tokens.shape[1]
    built = estimators(
        model.denoiser, budget, cutoff, table=table, batch_size=at_once(model.denoiser, length)
    )
    size = max(1, 2**24 // (budget * length * d))  # states of one group of sequences
    if len(tokens) == 0:  # a process without a share
        empty = Estimate(torch.zeros(0, 2, length, dtype=torch.float64))
        return Report(model, tokens, dict.fromkeys(only or built, empty), cutoff)
    chosen_names = list(built) if only is None else list(only)
    unknown = [name for name in chosen_names if name not in built]
    if unknown:
        raise ValueError(f"{model.name} has no estimator {unknown}; expected some of {list(built)}")
    parts: dict[str, list[Estimate]] = {name: [] for name in chosen_names}
    for begin in range(0, len(tokens), size):
        rows = tokens[begin : begin + size].to(device)
        for number, (name, estimator) in enumerate(built.items()):
            if name not in parts:
                continue
            chosen = names[begin : begin + size]
            streams = Streams(tuple(stream(seed, number, i, device=device) for i in chosen))
            estimate = estimator(model.denoiser, rows, generator=streams)
            parts[name].append(Estimate(estimate.values.cpu()))
            if on_progress:
                on_progress(len(rows), rows.numel())
    estimates = {name: Estimate.join(of) for name, of in parts.items()}
    return Report(model, tokens, estimates, cutoff)


VALIDATED = ("chain-rule", "vdm-bound", "roar", "shared")


def validator(tokens: Tokens, *, budget: int = 16, cutoff: float = 20.0) -> Validate:
    """Measure a network on fixed blocks with fixed noise, in bits per token.

    An autoregressive network by its chain rule, any other by ROAR and, if it has states between
    mask and token, along the shared contour. The first of these is its `loss`.
    """

    def validate(network: Network) -> dict[str, float]:
        training = network.training
        network.eval()
        device = network.codebook.device
        bits: dict[str, float] = {}
        size = at_once(network, tokens.shape[1])
        for name, estimator in estimators(network, budget, cutoff, batch_size=size).items():
            if name in VALIDATED:
                streams = Streams.derive(0, range(len(tokens)), device=device)
                nats = estimator(network, tokens.to(device), generator=streams).nats
                values = Mean.of(nats / tokens.shape[1] / math.log(2), torch.zeros_like(nats))
                bits |= {name: values.mean, f"{name}_stderr": values.stderr}
        network.train(training)
        return {"loss": next(iter(bits.values())), **bits}

    return validate


def likelihood(
    model: str | Path | Model,
    texts: str | Sequence[str],
    *,
    length: int | None = None,
    span: tuple[int, int] | None = None,
    budget: int = 64,
    cutoff: float | None = None,
    seed: int = 0,
    only: Sequence[str] | None = None,
) -> Report:
    """Score texts with every estimator, or only some.

    Texts are cut into blocks of `length` tokens, and what is left of each is not scored. If it is
    not given, it is the model's own length or, if no text is so long, that of the longest.

    With a span (begin, end) of token positions, only what lies inside is scored, given the rest.

    >>> dsl.likelihood("oracle:cyclic-7", ["ABCDEFG"]).bits_per_token("roar")
    """
    texts = [texts] if isinstance(texts, str) else texts
    model = model if isinstance(model, Model) else load(model, length=length)
    if length is None:
        longest = max((len(model.encode(text)) for text in texts), default=0)
        brackets = sum(map(len, model.ends))
        length = model.length if model.exact_length else min(model.length, longest + brackets)
    tokens = cut(texts, model.encode, max(length, 1), model.ends)
    if span is None:
        return score(model, tokens, budget=budget, cutoff=cutoff, seed=seed, only=only)
    begin, end = span
    if not 0 <= begin < end <= tokens.shape[1]:
        raise ValueError(f"a span must lie within 0 … {tokens.shape[1]}, got {begin} … {end}")
    if not continuous(model.denoiser):
        raise ValueError("spans are scored by conditioning, which needs a DSL model or an oracle")
    if cutoff is None:
        few = tokens[:16].to(model.denoiser.codebook.device)
        streams = Streams.derive(seed, range(len(few)), device=few.device)
        cutoff = choose_cutoff(model.denoiser, few, generator=streams)
    parts: dict[str, list[Estimate]] = {}
    for index, row in enumerate(tokens):
        rest = _given_rest(model, row, begin, end)
        one = score(
            rest,
            row.unsqueeze(0),
            indices=[index],
            budget=budget,
            cutoff=cutoff,
            seed=seed,
            only=only,
        )
        for name, estimate in one.estimates.items():
            parts.setdefault(name, []).append(estimate)
    joined = {name: Estimate.join(of) for name, of in parts.items()}
    return Report(model, tokens, joined, cutoff, span)


def _given_rest(model: Model, row: Int[Tensor, "l"], begin: int, end: int) -> Model:
    """Condition a model on all tokens outside a span."""
    hints: list[Observation] = [
        Unknown() if begin <= position < end else Known(token)
        for position, token in enumerate(row.tolist())
    ]
    codebook = model.denoiser.codebook.detach()
    known = evidence(likelihood_of([hints], codebook), codebook, model.denoiser.snr_max)
    return replace(model, denoiser=given(model.denoiser, known))
