"""Score blocks of tokens with the estimators of their model's family."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dsl.denoiser import at_once
from dsl.likelihoods.effort import Effort
from dsl.likelihoods.estimate import Estimator
from dsl.likelihoods.path_integral import PathIntegral, choose_cutoff
from dsl.loading import Model
from dsl.path import Tabulated
from dsl.scoring.report import Block, Report
from dsl.streams import Streams, stream
from dsl.types import Row, Tokens

STATES_AT_ONCE = 2**24
"""Numbers that the states of one group of sequences may have."""


def score(
    model: Model,
    rows: Sequence[Row] | Tokens,
    *,
    indices: Sequence[int] | None = None,
    texts: Sequence[int] | None = None,
    budget: int = 64,
    cutoff: float | None = None,
    validation: Sequence[Row] | None = None,
    table: Tabulated | None = None,
    seed: int = 0,
    only: Sequence[str] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Estimate the likelihood of blocks, which may have different lengths.

    Args:
        model: Whose likelihood.
        rows: The blocks.
        indices: Their places in the whole corpus, which determine their random numbers.
        texts: The texts they were cut from.
        budget: Denoiser calls for each block and estimator.
        cutoff: Γ, where contours end; if not given, it is chosen once with the same budget on
            the validation blocks, or on the scored ones if there are no others.
        validation: Blocks that are not scored.
        table: One more contour.
        seed: Where the random numbers start.
        only: The estimators to use; all of the family if not given.
        on_progress: Told how many blocks and tokens one estimator is done with.
    """
    whole = list(rows)
    for length in {len(row) for row in whole}:
        model.require_length(length)
    effort = Effort(budget, 1.0 if cutoff is None else cutoff, table).on(model.device)
    names = _chosen(model, effort, only)
    if cutoff is None:
        held_out = whole if validation is None or not len(validation) else list(validation)
        effort = replace(effort, cutoff=_cutoff(model, effort, held_out, seed))
    places = range(len(whole)) if indices is None else indices
    found: dict[int, dict[str, Tensor]] = {number: {} for number in range(len(whole))}
    kinds = {e.label: e.kind for e in model.family.estimators(model.denoiser, effort)}
    for group in _groups(model, whole, effort.budget):
        tokens = torch.stack([whole[i] for i in group]).to(model.device)
        size = at_once(model.denoiser, tokens.shape[1])
        sized = replace(effort, batch_size=size)
        for estimator in model.family.estimators(model.denoiser, sized):
            if estimator.label not in names:
                continue
            streams = streams_of(estimator, seed, [places[i] for i in group], model.device)
            values = estimator(model.denoiser, tokens, generator=streams).values.cpu()
            for number, own in zip(group, values, strict=True):
                found[number][estimator.label] = own
            if on_progress:
                on_progress(len(group), tokens.numel())
    blocks = [
        Block(row.cpu(), found[i], i if texts is None else texts[i]) for i, row in enumerate(whole)
    ]
    return Report(model, blocks, {name: kinds[name] for name in names}, effort.cutoff)


def streams_of(
    estimator: Estimator, seed: int, places: Sequence[int], device: torch.device
) -> Streams:
    """Derive the streams of sequences for an estimator: by its name, not by its place in a list."""
    key = zlib.crc32(estimator.label.encode())
    return Streams(tuple(stream(seed, key, place, device=device) for place in places))


def _chosen(model: Model, effort: Effort, only: Sequence[str] | None) -> list[str]:
    known = [e.label for e in model.family.estimators(model.denoiser, effort)]
    unknown = [name for name in only or () if name not in known]
    if unknown:
        raise ValueError(f"{model.name} has no estimator {unknown}; expected some of {known}")
    return known if only is None else list(dict.fromkeys(only))


def _cutoff(model: Model, effort: Effort, held_out: Sequence[Row], seed: int) -> float:
    """Choose Γ for the family's path integrals with the caller's budget; 0 if it has none."""
    integrals = [
        estimator
        for estimator in model.family.estimators(model.denoiser, effort)
        if isinstance(estimator, PathIntegral)
    ]
    if not integrals or not held_out:
        return effort.cutoff
    longest = max(len(row) for row in held_out)
    few = torch.stack([row for row in held_out if len(row) == longest][:16]).to(model.device)
    streams = Streams.derive(seed, range(len(few)), device=model.device)
    return choose_cutoff(model.denoiser, few, estimator=integrals[0], generator=streams)


def _groups(model: Model, rows: Sequence[Row], budget: int) -> Iterator[list[int]]:
    """Group blocks of one length, as many as fit into memory with all their states."""
    codebook = getattr(model.denoiser, "codebook", None)
    width = 1 if codebook is None else codebook.shape[1]
    for length in dict.fromkeys(len(row) for row in rows):
        same = [i for i, row in enumerate(rows) if len(row) == length]
        size = max(1, STATES_AT_ONCE // (budget * length * width))
        yield from (same[i : i + size] for i in range(0, len(same), size))
