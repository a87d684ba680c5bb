"""A network over tokens that is told the time: MDLM's DiT with its clock running."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from dsl.alpha import Schedule, ScheduleName, schedule
from dsl.denoiser import require_tokens
from dsl.kernel import Kernel, Noise
from dsl.models.config import NetworkShape
from dsl.models.mdlm import MDLM
from dsl.models.network import ShapedNetwork
from dsl.types import MASK, Logits, Tokens

TICKS = 1000.0
"""What the clock shows at t = 1: its sinusoids have periods from 6 to 60,000."""


@dataclass(frozen=True)
class TimedShape(NetworkShape):
    """The shape of a network with a time."""

    cond_dim: int = 128
    noise: Noise = "absorbing"
    """What becomes of a token: a mask, or any other."""
    schedule: ScheduleName = "linear"
    """How α falls with the time."""
    power: float = 2.0
    """w of the polynomial schedule 1 - t^w."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.llama is not None:
            raise ValueError("llama's blocks read no clock, which this family's network needs")
        if self.cond_dim < 1:
            raise ValueError(f"cond_dim must be at least 1, got {self.cond_dim}")
        schedule(self.schedule, self.power)  # refuses a power that makes none


class TimedModel(ShapedNetwork):
    """MDLM's network, tensor for tensor, modulated by the time; [MASK] is its last id."""

    def __init__(self, config: TimedShape) -> None:
        super().__init__(config)
        self.config = config
        rows = config.vocab_size + 1
        self.backbone = MDLM(rows, cond_dim=config.cond_dim, **config.blocks)

    @property
    def kernel(self) -> Kernel:
        """What becomes of a token that is not left alone."""
        return Kernel(self.config.noise, self.vocab_size)

    @property
    def alpha(self) -> Schedule:
        """How many are left alone at a time."""
        return schedule(self.config.schedule, self.config.power)

    def at_time(self, tokens: Tokens, t: Float[Tensor, "b"]) -> Logits:
        """Return the logits of the real tokens at every position, one time for each sequence."""
        require_tokens(tokens, self.vocab_size, least=MASK)
        ids = tokens.masked_fill(tokens == MASK, self.vocab_size)
        return self._from_rows(self.backbone.vocab_embed(ids), t)

    def _from_rows(self, rows: Float[Tensor, "b l h"], t: Float[Tensor, "b"]) -> Logits:
        """Return the logits of the real tokens, given what stands for each token in the table."""
        clock = (TICKS * t).to(next(self.parameters()).dtype)
        features = self.backbone.features(rows, clock)
        return self.backbone.head(features, clock)[..., : self.vocab_size]
