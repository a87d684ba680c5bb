"""Forward and reverse KL divergence between a model and a source with known probabilities.

The model writes from left to right. The probability of a text along this path is a product of
network outputs, so neither direction needs a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dsl.checkpoints import Model
from dsl.core import Prefixed, Streams, Tokens, at_once
from dsl.evaluation import Teacher
from dsl.likelihoods import Causal, Mean
from dsl.samplers import Reveal, State, last

Report = Callable[[int], None]
"""Progress callback, called with a number of finished texts."""


@dataclass(frozen=True)
class Divergence:
    """Nats per token, with standard errors over texts."""

    forward: Mean
    """KL(source ‖ model), large if the model misses texts of the source."""
    reverse: Mean
    """KL(model ‖ source), large if the model writes texts that the source would not."""


def divergence(
    model: Model, source: Teacher, texts: Tokens, *, seed: int = 0, report: Report = lambda _: None
) -> Divergence:
    """Estimate both Kullback-Leibler divergences between a model's left-to-right path and a source.

    Args:
        model: The model; it must have the source's tokenizer.
        source: The causal model that defines the true distribution.
        texts: Texts drawn from the source; the same number is drawn from the model.
        seed: Seed of the model's samples.
        report: Progress callback; the total is twice the number of texts.
    """
    if not model.can_answer(Prefixed):
        raise ValueError(
            "divergence needs a model that can write from left to right, "
            f"got {model.name} of family {model.family.name}"
        )
    ours, theirs = (m.tokenizer and m.tokenizer.to_str() for m in (model, source.model))
    if ours is None or ours != theirs:
        raise ValueError(f"{model.name} must have the tokenizer of the source {source.model.name}")
    size = at_once(model.denoiser, texts.shape[1])
    streams = range(len(texts))
    amounts, counts = [], []
    for begin in range(0, len(texts), size):
        part = texts[begin : begin + size].to(model.device)
        charged = causal_nats(model, part, own := counted(model, part))
        amounts.append(charged - _known(source, part))
        counts.append(own.sum(dim=1).double())
        report(len(part))
    drawn_amounts, drawn_counts = [], []
    for begin in range(0, len(texts), size):
        places = streams[begin : begin + size]
        start = State.blank(len(places), texts.shape[1], device=model.device)
        chance = Streams.derive(seed, places, device=model.device)
        end = last(Reveal("causal"), model.denoiser, start, generator=chance)
        own = counted(model, end.tokens)
        written = -end.confidence.log().where(own, 0.0).sum(dim=1)
        drawn_amounts.append(_known(source, end.tokens) - written)
        drawn_counts.append(own.sum(dim=1).double())
        report(len(places))
    return Divergence(_mean(amounts, counts), _mean(drawn_amounts, drawn_counts))


def counted(model: Model, tokens: Tokens) -> Bool[Tensor, "b l"]:
    """Return which tokens count: in documents those up to the end token, else all."""
    if not model.documents or model.end is None:
        return torch.ones_like(tokens, dtype=torch.bool)
    ended = (tokens == model.end).long().cumsum(dim=1)
    return (ended == 0) | ((ended == 1) & (tokens == model.end))


def causal_nats(model: Model, tokens: Tokens, own: Bool[Tensor, "b l"]) -> Float[Tensor, "b"]:
    """Return -log P of texts along the left-to-right path, with one call for each token."""
    length = tokens.shape[1]
    every = Causal(2, length, at_once(model.denoiser, length))
    return every(model.denoiser, tokens).tokens.where(own, 0.0).sum(dim=1)


def _known(source: Teacher, tokens: Tokens) -> Float[Tensor, "b"]:
    assert source.model.tokenizer is not None
    rows = tokens.tolist()
    return source.score([""] * len(rows), rows, source.model.tokenizer).nats.to(tokens.device)


def _mean(amounts: Sequence[Tensor], counts: Sequence[Tensor]) -> Mean:
    whole = torch.cat(list(amounts))
    return Mean.ratio(whole.cpu(), torch.cat(list(counts)).cpu(), torch.zeros(len(whole)))
