"""A new vocabulary for a character model.

A new symbol is initialised from the most similar known one and shares its probability, so that
fine-tuning need not learn spelling again. Added blocks are initialised to the identity.
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
"""Noise on the embeddings of new symbols, relative to their spread; identical embeddings could not
be told apart."""


@dataclass(frozen=True)
class Ancestry:
    """The known symbol that initialises each new one, and the share of its probability."""

    parents: Sequence[int | None]
    """The old token; None for symbols without a similar one."""
    known: Sequence[bool]
    """Whether a symbol is in the old vocabulary."""
    log_share: Float[Tensor, "v"]

    @classmethod
    def of(cls, old: Sequence[str], new: Sequence[str], counts: Mapping[str, int]) -> Ancestry:
        """Find the parent of every symbol: itself, its lower-case letter, or a space.

        Args:
            old: The symbols of the old vocabulary, by token.
            new: The symbols of the new vocabulary.
            counts: Occurrences of new symbols; one is added to each.
        """
        known = {symbol: token for token, symbol in enumerate(old)}
        parents = [_parent(symbol, known) for symbol in new]
        often = torch.tensor([counts.get(symbol, 0) + 1.0 for symbol in new], dtype=torch.float64)
        families: dict[int | None, float] = {}
        for parent, count in zip(parents, often.tolist(), strict=True):
            families[parent] = families.get(parent, 0.0) + count
        # the share of symbols without a parent is their frequency among all symbols
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
    """Return a model with the new vocabulary, initialised from this one.

    Before training, symbols share the probability of their parent.

    Args:
        model: A character model with DiT blocks and a table of values.
        ancestry: The parents of the new symbols.
        blocks: Number of blocks, at least the model's.
        length: Maximum sequence length; the model's if not given.
        apart: Noise on the embeddings of new symbols.
    """
    config = model.config
    if not isinstance(model.backbone, DiT) or config.values != "table":
        raise ValueError("only DSL models with DiT blocks and values: table can change vocabulary")
    size, blocks = len(ancestry.parents), blocks or config.n_blocks
    if blocks < config.n_blocks:
        raise ValueError(f"blocks must be at least the model's {config.n_blocks}, got {blocks}")
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
    """Return each symbol's parent row, or the mean without one; new symbols get noise."""
    mean = rows.mean(dim=0)
    found = torch.stack([mean if p is None else rows[p] for p in ancestry.parents])
    moved = ~torch.tensor(ancestry.known).view(-1, *(1,) * (rows.dim() - 1))
    noise = torch.randn(found.shape, generator=stream(0)) * rows.std()
    return found + apart * moved * noise
