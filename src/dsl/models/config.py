"""Network shapes as written to config.json, and the base class of networks that have one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeVar

import torch
from torch import nn

from dsl._util import config as strict
from dsl.models.llama import LlamaOptions

S = TypeVar("S", bound="NetworkShape")

MOST_WEIGHTS = 10**11
"""Larger shapes are refused: they would not fit into memory."""
MOST_BLOCKS, LONGEST = 1000, 1_000_000
"""Limits on blocks and tokens; larger models would take a day to build or run."""


@dataclass(frozen=True)
class NetworkShape:
    """The fields that determine the tensors of any network. Names follow MDLM."""

    vocab_size: int
    """Real tokens; [MASK] is the zero state and has no id."""
    hidden_dim: int = 768
    n_blocks: int = 12
    n_heads: int = 12
    dropout: float = 0.1
    model_length: int = 1024
    """The longest sequence the model was made for."""
    llama: LlamaOptions | None = None
    """Options of llama blocks; None uses the family's own blocks."""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_dim", "n_blocks", "n_heads", "model_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.n_blocks > MOST_BLOCKS or self.model_length > LONGEST:
            raise ValueError(
                f"n_blocks must be at most {MOST_BLOCKS:,} and model_length at most {LONGEST:,}, "
                f"got {self.n_blocks} and {self.model_length}"
            )
        if self.hidden_dim % (2 * self.n_heads):
            raise ValueError(
                f"hidden_dim must be n_heads times an even number (rotary embedding), "
                f"got {self.hidden_dim} and {self.n_heads} heads"
            )
        groups = None if self.llama is None else self.llama.kv_heads
        if groups is not None and self.n_heads % groups:
            raise ValueError(
                f"n_heads must be a multiple of llama.kv_heads, got {self.n_heads} and {groups}"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")
        wide = 8 * self.hidden_dim if self.llama is None else 3 * self.llama.mlp_dim
        weights = self.n_blocks * self.hidden_dim * (4 * self.hidden_dim + wide)
        weights += 2 * self.vocab_size * self.hidden_dim
        if weights > MOST_WEIGHTS:
            raise ValueError(
                f"a network of {self.n_blocks} blocks of width {self.hidden_dim} with "
                f"{self.vocab_size} tokens has more than {MOST_WEIGHTS:.0e} weights"
            )

    @property
    def blocks(self) -> dict[str, Any]:
        """The shape of a backbone's blocks, as its arguments."""
        names = ("hidden_dim", "n_blocks", "n_heads", "dropout")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_dict(
        cls: type[S], values: dict[str, Any], *, ignore: frozenset[str] = frozenset()
    ) -> S:
        """Build a shape from a flat dictionary; unknown keys raise an error.

        Args:
            values: The contents of config.json, without the kind of model.
            ignore: Obsolete keys of earlier versions.
        """
        dropped = ignore - {field.name for field in fields(cls)}
        kept = {name: value for name, value in values.items() if name not in dropped}
        return strict.read(cls, kept, "the model config")

    def to_dict(self) -> dict[str, Any]:
        """Return the flat dictionary that config.json holds."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class ShapedNetwork(nn.Module):
    """A network with a config."""

    def __init__(self, config: NetworkShape) -> None:
        super().__init__()
        self._shape = config

    @property
    def vocab_size(self) -> int:
        """The number of real tokens."""
        return self._shape.vocab_size

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def __repr__(self) -> str:
        """Describe the network in two lines; `str(list(network.modules()))` shows everything."""
        shape = self._shape
        weights = sum(p.numel() for p in self.parameters())
        return (
            f"{type(self).__name__}: {weights:,} weights, {shape.n_blocks} blocks of width "
            f"{shape.hidden_dim}, {shape.n_heads} heads,\n"
            f"  {shape.vocab_size:,} tokens, sequences of at most {shape.model_length:,}, "
            f"on {self.device}"
        )


@dataclass(frozen=True)
class ModelConfig(NetworkShape):
    """The shape of a DSL model: blocks, codebook and converter."""

    cond_dim: int = 128
    codebook_dim: int = 64
    """d, the dimension of a token state; with d >= v - 1 all evidence is exact."""
    backbone: Literal["dit", "encoder", "llama"] = "dit"
    values: Literal["table", "unit"] = "table"
    """What the converter mixes: a table of hidden rows, or the unit embeddings themselves."""
    codebook: Literal["random", "simplex", "projected"] = "random"
    """How the codebook is initialised."""
    train_codebook: bool = True
    mask_probability: float = 0.5
    """q(MASK | z = 0) at initialisation: 0.5 from scratch, 0.99 to fine-tune a masked model."""
    beta: float = 1.0
    """The converter's inverse temperature at initialisation; 1 is the Bayes scale."""
    snr_max: float = 100.0
    """γ_max, the SNR of a revealed token."""
    evidence_logits: bool = False
    """Whether a state's own scores ⟨z, x_v⟩ are added to the logits, as Bayes' rule does
    (equation 12): the network then predicts the context term only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_codebook(self.vocab_size, self.codebook_dim, self.codebook)
        if (self.backbone == "llama") != (self.llama is not None):
            options = "given" if self.llama is not None else "missing"
            raise ValueError(
                f"backbone: llama and the options of llama belong together, got {self.backbone!r} "
                f"with options {options}"
            )
        if self.llama is not None and self.llama.tied and self.values != "table":
            raise ValueError("a tied head reads the table of values: use values: table")
        if self.cond_dim < 1 or self.snr_max <= 0 or self.beta <= 0:
            raise ValueError(
                "cond_dim must be at least 1, snr_max and beta must be positive, "
                f"got {self.cond_dim}, {self.snr_max} and {self.beta}"
            )
        if self.snr_max > 1e6 or self.beta > 1e6:  # single precision has no room for the logits
            raise ValueError(
                f"snr_max and beta must be at most 1e6, got {self.snr_max:g} and {self.beta:g}"
            )
        if not 0 < self.mask_probability < 1:
            raise ValueError(f"mask_probability must lie in (0, 1), got {self.mask_probability}")


def require_codebook(vocab_size: int, dim: int, kind: str) -> None:
    """Raise an error if the codebook dimension does not fit the vocabulary."""
    if dim < 1 or dim * vocab_size > MOST_WEIGHTS:
        raise ValueError(f"codebook_dim must lie in 1 … {MOST_WEIGHTS // vocab_size:,}, got {dim}")
    if kind == "simplex" and dim < vocab_size - 1:
        raise ValueError(
            f"a simplex of {vocab_size} tokens needs codebook_dim >= {vocab_size - 1}, got {dim}"
        )


def codebook_for(vocab_size: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return codebook defaults: d = v - 1, which makes evidence exact, if affordable.

    Args:
        vocab_size: The number of tokens.
        given: The fields set by the user.
    """
    exact = vocab_size <= 257
    return {
        "codebook_dim": vocab_size - 1 if exact else 64,
        "codebook": "simplex" if exact and "codebook_dim" not in given else "random",
    }
