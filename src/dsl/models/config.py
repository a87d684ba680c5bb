"""The shape of a model, as written to config.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args, get_type_hints


@dataclass(frozen=True)
class ModelConfig:
    """Every choice that fixes the tensors of a DSLModel. Sizes follow MDLM's names."""

    vocab_size: int
    """Real tokens; [MASK] is the zero state and has no id."""
    codebook_dim: int = 64
    """d, the coordinates of a token state; v - 1 or more makes all evidence exact."""
    hidden_dim: int = 768
    cond_dim: int = 128
    n_blocks: int = 12
    n_heads: int = 12
    dropout: float = 0.1
    model_length: int = 1024
    """The longest sequence the model was made for."""
    backbone: Literal["dit", "encoder"] = "dit"
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

    def __post_init__(self) -> None:
        for name in ("vocab_size", "codebook_dim", "hidden_dim", "cond_dim", "n_blocks", "n_heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.model_length < 1 or self.snr_max <= 0 or self.beta <= 0:
            raise ValueError(
                "model_length, snr_max and beta must be positive, "
                f"got {self.model_length}, {self.snr_max} and {self.beta}"
            )
        if self.hidden_dim % (2 * self.n_heads):
            raise ValueError(
                f"hidden_dim must be n_heads times an even number (rotary embedding), "
                f"got {self.hidden_dim} and {self.n_heads} heads"
            )
        if not 0 < self.mask_probability < 1 or not 0 <= self.dropout < 1:
            raise ValueError(
                "mask_probability must lie in (0, 1) and dropout in [0, 1), "
                f"got {self.mask_probability} and {self.dropout}"
            )
        if self.codebook == "simplex" and self.codebook_dim < self.vocab_size - 1:
            raise ValueError(
                f"a simplex of {self.vocab_size} tokens needs codebook_dim >= "
                f"{self.vocab_size - 1}, got {self.codebook_dim}"
            )

    @property
    def blocks(self) -> dict[str, Any]:
        """The shape of a backbone's blocks, as its arguments."""
        names = ("hidden_dim", "n_blocks", "n_heads", "dropout")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ModelConfig:
        """Build a config from a flat dictionary, refusing keys it does not have."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(
                f"unknown model config key {', '.join(map(repr, unknown))}; "
                f"expected some of {', '.join(sorted(known))}"
            )
        if "vocab_size" not in values:
            raise ValueError("the model config lacks 'vocab_size'")
        hints = get_type_hints(cls)
        return cls(**{name: _checked(name, hints[name], value) for name, value in values.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return the flat dictionary that config.json holds."""
        return asdict(self)


def _checked(name: str, kind: Any, value: Any) -> Any:
    choices = get_args(kind)
    if choices:
        fits, expected = value in choices, f"one of {', '.join(map(repr, choices))}"
    elif kind is float:
        fits, expected = type(value) in (int, float), "a number"
    else:
        fits, expected = type(value) is kind, f"of type {kind.__name__}"
    if not fits:
        raise ValueError(f"model config key {name!r} must be {expected}, got {value!r}")
    return float(value) if kind is float else value


def tiny(vocab_size: int, **changes: Any) -> ModelConfig:
    """MDLM's tiny shape: 8 blocks of width 512."""
    shape = ModelConfig(vocab_size, hidden_dim=512, n_blocks=8, n_heads=8)
    return replace(shape, **changes)


def small(vocab_size: int, **changes: Any) -> ModelConfig:
    """MDLM's small shape, the paper's: 12 blocks of width 768."""
    return replace(ModelConfig(vocab_size), **changes)


def medium(vocab_size: int, **changes: Any) -> ModelConfig:
    """MDLM's medium shape: 24 blocks of width 1024."""
    shape = ModelConfig(vocab_size, hidden_dim=1024, n_blocks=24, n_heads=16)
    return replace(shape, **changes)
