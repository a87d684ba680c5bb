"""A model learns another alphabet: what it knows of a letter is where its relatives begin.

A character model has spent most of its training on which letters follow which. Capitals, digits and
punctuation need not cost that again: a new symbol starts as the nearest one that the model knows,
and shares its probability. New blocks may be added; they begin as the identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.core.streams import stream
from dsl.models.config import codebook_for
from dsl.models.dit import DiT
from dsl.models.dsl import DSLModel

APART = 0.3
"""How far a new symbol's row begins from its relative's, relative to that: two that are read
alike could not be told apart."""


@dataclass(frozen=True)
class Ancestry:
    """Which known symbol each new one begins as, and its share among all that begin as that."""

    parents: Sequence[int | None]
    """The token of the old alphabet; None for symbols that resemble nothing."""
    known: Sequence[bool]
    """Whether a symbol is its own parent."""
    log_share: Float[Tensor, "v"]

    @classmethod
    def of(cls, old: Sequence[str], new: Sequence[str], counts: Mapping[str, int]) -> Ancestry:
        """Trace symbols back: to themselves, to their small letter, or to a space.

        Args:
            old: The symbols that the model knows, by token.
            new: The symbols that it shall know.
            counts: How often each of those occurs; one more is added to each.
        """
        known = {symbol: token for token, symbol in enumerate(old)}
        parents = [_parent(symbol, known) for symbol in new]
        often = torch.tensor([counts.get(symbol, 0) + 1.0 for symbol in new], dtype=torch.float64)
        families: dict[int | None, float] = {}
        for parent, count in zip(parents, often.tolist(), strict=True):
            families[parent] = families.get(parent, 0.0) + count
        # what resembles nothing is a family of its own, whose share is that among all symbols
        families[None] = float(often.sum())
        total = torch.tensor([families[parent] for parent in parents], dtype=torch.float64)
        return cls(parents, [symbol in known for symbol in new], (often / total).log())


def _parent(symbol: str, known: Mapping[str, int]) -> int | None:
    small = symbol.lower()
    if symbol in known or small in known:
        return known.get(symbol, known.get(small))
    return None if symbol.isalnum() else known.get(" ")


def respelled(
    model: DSLModel,
    ancestry: Ancestry,
    *,
    blocks: int | None = None,
    length: int | None = None,
    apart: float = APART,
) -> DSLModel:
    """Return a model of the new alphabet that begins with all that this one has learned.

    Until it is trained, the probability of a known symbol is shared by those that begin as it.

    Args:
        model: A character model with the blocks of the DiT and a table of values.
        ancestry: Where the new symbols come from.
        blocks: How many blocks there shall be, at least as many as there are.
        length: The longest sequence; the model's own if not given.
        apart: How far new rows begin from those of their parents.
    """
    config = model.config
    if not isinstance(model.backbone, DiT) or config.values != "table":
        raise ValueError("only DSL models of the DiT with a table of values change their alphabet")
    size, blocks = len(ancestry.parents), blocks or config.n_blocks
    if blocks < config.n_blocks:
        raise ValueError(f"the model has {config.n_blocks} blocks and keeps them, got {blocks}")
    made = DSLModel(
        replace(
            config,
            vocab_size=size,
            n_blocks=blocks,
            model_length=length or config.model_length,
            **codebook_for(size, {}),
        )
    )
    state, source = made.state_dict(), model.state_dict()
    state |= {name: t for name, t in source.items() if t.shape == state[name].shape}
    shares = ancestry.log_share.float()
    head = "backbone.output_layer.linear"
    rows = _inherited(source["converter.values.weight"][:-1], ancestry, apart)
    state["converter.values.weight"] = torch.cat([rows, source["converter.values.weight"][-1:]])
    state[f"{head}.weight"] = _inherited(source[f"{head}.weight"], ancestry, 0.0)
    state[f"{head}.bias"] = _inherited(source[f"{head}.bias"], ancestry, 0.0) + shares
    before = source["converter.bias"]
    tokens = _inherited(before[:-1], ancestry, 0.0) + shares
    state["converter.bias"] = torch.cat([tokens, before[-1:]])
    made.load_state_dict(state)
    made.converter.set_mask_probability(float(before.softmax(dim=0)[-1]))
    return made.eval()


def _inherited(rows: Float[Tensor, "old *h"], ancestry: Ancestry, apart: float) -> Tensor:
    """Give each symbol its parent's row, or the mean; new ones are moved away from it."""
    mean = rows.mean(dim=0)
    found = torch.stack([mean if p is None else rows[p] for p in ancestry.parents])
    moved = ~torch.tensor(ancestry.known).view(-1, *(1,) * (rows.dim() - 1))
    noise = torch.randn(found.shape, generator=stream(0)) * rows.std()
    return found + apart * moved * noise
