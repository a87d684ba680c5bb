"""The continuous baseline: variance-preserving diffusion with a clock (appendix B's contrast).

The same unit-norm table, DiT and categorical x̂ as DSL. What differs is what DSL does away with:
the state is scaled to unit variance and passed through one linear layer, and every block is
modulated by the log-SNR.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.channel import observe
from dsl.denoiser import Endpoints, posterior_mean
from dsl.models.codebook import UnitCodebook, initial_table
from dsl.models.config import ModelConfig
from dsl.models.dit import DiT
from dsl.streams import Streams, uniform
from dsl.training.objective import Loss
from dsl.types import Codebook, Logits, Mask, Noisy, Rows, Tokens

SNR_MIN = 1e-3
"""Where the bound begins: the state there says 0.0005 nats about a token of 26 coordinates."""


@dataclass(frozen=True)
class VpObjectiveConfig:
    """How the bound is spent."""

    reconstruction: float = 0.125
    """The share of sequences that are observed at γ_max and reconstructed."""
    power: float = 2.0
    """The others are at γ_min + (γ_max - γ_min) u^power, u stratified over the batch."""

    def __post_init__(self) -> None:
        if not 0 < self.reconstruction < 1 or self.power < 1:
            raise ValueError(
                "reconstruction must lie in (0, 1) and power be at least 1, "
                f"got {self.reconstruction} and {self.power}"
            )


class VpModel(nn.Module):
    """A network that must be told the SNR of its input; only its own sampler and bound can."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        v, d = config.vocab_size, config.codebook_dim
        self.sphere = UnitCodebook(
            initial_table(config.codebook, v, d), trainable=config.train_codebook
        )
        self.project = nn.Linear(d, config.hidden_dim)
        self.backbone = DiT(v, cond_dim=config.cond_dim, **config.blocks)

    @property
    def codebook(self) -> Codebook:
        """The unit-norm embeddings x_v of the tokens."""
        codebook: Tensor = self.sphere()
        return codebook

    @property
    def snr_max(self) -> float:
        """γ_max, where tokens are read off."""
        return self.config.snr_max

    @property
    def snr_range(self) -> tuple[float, float]:
        """The SNRs the network was trained at."""
        return SNR_MIN, self.config.snr_max

    def at_snr(self, z: Noisy, snr: Float[Tensor, "b"]) -> Logits:
        """Return clean-token logits of states z = γx + √γ ε, all positions of one at one γ."""
        gamma = snr.view(-1, 1, 1)
        unit = z / (gamma + gamma.square() / z.shape[-1]).sqrt()
        clock = snr.log()
        return self.backbone.head(self.backbone.features(self.project(unit), clock), clock)

    def forward(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Refuse: a state alone is not enough for a network with a clock."""
        raise ValueError(
            "a VP network must be told the SNR of the whole sequence: sample it with vp@T, "
            "score it by its own bound, and give it no soft evidence"
        )

    def describe(self) -> dict[str, Any]:
        """Return the contents of config.json."""
        return {"kind": "vp", **self.config.to_dict()}


class VpObjective(nn.Module):
    """VDM's bound: the squared error of x̂ over all SNRs, and the reconstruction at the last."""

    def __init__(self, model: VpModel, config: VpObjectiveConfig) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Spend each sequence on one SNR, the SNRs stratified over the global batch.

        The prior term is left out: at a fixed γ_min on the unit sphere it is a constant.
        """
        b, length = tokens.shape
        device = tokens.device
        share, power = self.config.reconstruction, self.config.power
        low, high = self.model.snr_range
        stratum = torch.tensor(list(places), device=device).unsqueeze(1)
        u = (uniform((b, 1), generator=streams, device=device) + stratum) / batch
        last = u < share
        inner = ((u - share) / (1 - share)).clamp(min=0)
        snr = torch.where(last, high, low + (high - low) * inner**power)
        codebook = self.model.codebook
        x = codebook[tokens]
        z = observe(x, snr.expand(b, length).to(x.dtype), generator=streams)
        logits = self.model.at_snr(z, snr.squeeze(1)).float()
        losses = nn.functional.cross_entropy(
            logits.flatten(0, 1), tokens.flatten(), reduction="none"
        ).reshape(b, length)
        error = (x - posterior_mean(logits, codebook)).square().sum(dim=-1)
        weight = 0.5 * (high - low) * power * inner ** (power - 1) / (1 - share)
        bound = torch.where(last, losses / share, weight * error)
        count = torch.tensor(tokens.numel(), device=device)
        at = last.expand_as(losses)
        parts = {
            "all": (bound.detach().sum(), count),
            "reconstruction": ((losses.detach() * at).sum(), at.sum()),
            "error": ((error.detach() * ~at).sum(), (~at).sum()),
        }
        return Loss(bound.mean(), parts)
