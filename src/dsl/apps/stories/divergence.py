"""How far a model is from a source whose probabilities are known, in both directions.

Both are of what the model writes from left to right: that path's probability of a text is a product
of the network's answers, so neither direction needs a bound.
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

Told = Callable[[int], None]
"""Told how many texts are done."""


@dataclass(frozen=True)
class Divergence:
    """Nats per token, with standard errors over texts."""

    forward: Mean
    """KL(source ‖ model): what the model charges for the source's texts beyond their entropy. Large
    where the model leaves out what the source writes."""
    reverse: Mean
    """KL(model ‖ source): what the source charges for the model's texts beyond their entropy. Large
    where the model writes what the source would not."""


def divergence(
    model: Model, source: Teacher, texts: Tokens, *, seed: int = 0, told: Told = lambda _: None
) -> Divergence:
    """Estimate both Kullback-Leibler divergences between a model's left-to-right path and a source.

    Args:
        model: The model; it must have the source's tokens.
        source: The causal model whose texts are the truth.
        texts: Texts that were drawn from the source; as many are drawn from the model.
        seed: Where the model's random numbers start.
        told: Told how many texts are done, of twice as many.
    """
    if not model.can_answer(Prefixed):
        raise ValueError(
            f"{model.name} is of family {model.family.name}, which cannot be asked from left to "
            "right: its divergence cannot be found"
        )
    ours, theirs = (m.tokenizer and m.tokenizer.to_str() for m in (model, source.model))
    if ours is None or ours != theirs:
        raise ValueError(f"{model.name} has other tokens than the source, {source.model.name}")
    size = at_once(model.denoiser, texts.shape[1])
    streams = range(len(texts))
    amounts, counts = [], []
    for begin in range(0, len(texts), size):
        part = texts[begin : begin + size].to(model.device)
        charged = causal_nats(model, part, own := counted(model, part))
        amounts.append(charged - _known(source, part))
        counts.append(own.sum(dim=1).double())
        told(len(part))
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
        told(len(places))
    return Divergence(_mean(amounts, counts), _mean(drawn_amounts, drawn_counts))


def counted(model: Model, tokens: Tokens) -> Bool[Tensor, "b l"]:
    """Choose the tokens of documents up to and with their ends; of other texts, all."""
    if not model.documents or model.end is None:
        return torch.ones_like(tokens, dtype=torch.bool)
    ended = (tokens == model.end).long().cumsum(dim=1)
    return (ended == 0) | ((ended == 1) & (tokens == model.end))


def causal_nats(model: Model, tokens: Tokens, own: Bool[Tensor, "b l"]) -> Float[Tensor, "b"]:
    """Return -log P of texts along the path from left to right, one call for each token."""
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
