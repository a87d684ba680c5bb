"""MDLM: masked diffusion over token ids, with its continuous-time bound as the objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dsl.denoiser import Endpoints, require_tokens, wanted
from dsl.models.config import ModelConfig
from dsl.models.mdlm import MDLM
from dsl.streams import Streams, uniform
from dsl.training.objective import Loss
from dsl.types import MASK, Codebook, Mask, Noisy, Rows, Tokens

LEAST_TIME = 1e-3


@dataclass(frozen=True)
class MdlmObjectiveConfig:
    """MDLM's objective has no choices."""


class MdlmModel(nn.Module):
    """MDLM's network as a denoiser of endpoint states: every masked path serves it.

    Its tensors have the published names, so `dsl convert mdlm` reads what it writes.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = MDLM(config.vocab_size + 1, cond_dim=config.cond_dim, **config.blocks)

    @property
    def codebook(self) -> Codebook:
        """All tokens at one point of the sphere: MDLM has no geometry of its own."""
        return self.backbone.vocab_embed.embedding.new_ones(1, 1).expand(self.config.vocab_size, 1)

    @property
    def snr_max(self) -> float:
        """The SNR of a revealed token; MDLM never sees another."""
        return self.config.snr_max

    def forward(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Return clean-token logits; the mask's own logit is left out, as SUBS does."""
        z, at = wanted(z, at)
        if not isinstance(z, Endpoints) or z.e is not None:
            raise ValueError(
                "an MDLM network knows masks and tokens only: use a masked path such as mdlm@T, "
                "remdm-loop@T, roar or causal, and no soft evidence"
            )
        require_tokens(z.tokens, self.codebook, least=MASK)
        mask = self.config.vocab_size
        ids = z.tokens.masked_fill(z.tokens == MASK, mask)
        features = self.backbone.features(self.backbone.vocab_embed(ids))
        logits: Tensor = self.backbone.head(features if at is None else features[at])
        return logits[..., :mask]

    def describe(self) -> dict[str, Any]:
        """Return the contents of config.json."""
        return {"kind": "mdlm", "time_conditioning": False, **self.config.to_dict()}


class MdlmObjective(nn.Module):
    """The continuous-time bound with the log-linear schedule: -log p / t at masked positions."""

    def __init__(self, model: MdlmModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Mask each sequence to its own time, the times stratified over the global batch."""
        b, length = tokens.shape
        device = tokens.device
        u = uniform((b, 1), generator=streams, device=device)
        stratum = torch.tensor(list(places), device=device).unsqueeze(1)
        t = (1 - LEAST_TIME) * ((u + stratum) / batch) + LEAST_TIME
        move = (1 - LEAST_TIME) * t
        hidden = uniform((b, length), generator=streams, device=device) < move
        logits = self.model(Endpoints(tokens.masked_fill(hidden, MASK)), at=hidden)
        losses = torch.zeros(b, length, device=device)
        losses[hidden] = nn.functional.cross_entropy(
            logits.float(), tokens[hidden], reduction="none"
        )
        weighted = losses / t
        count = torch.tensor(tokens.numel(), device=device)
        entropy = (losses.detach().sum(), hidden.sum())
        parts = {"all": (weighted.detach().sum(), count), "masked": entropy}
        return Loss(weighted.mean(), parts)
