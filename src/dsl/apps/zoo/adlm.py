"""ADLM: an anchor network predicts rare tokens first, and the denoiser reads its predictions.

Both are stacks of MDLM's blocks; together they have as many as one network of another family. They
are trained jointly: the denoiser by MDLM's bound, the anchor network on the rare tokens of a text.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.core import (
    MASK,
    Endpoints,
    Linear,
    Logits,
    Mask,
    Noisy,
    Rows,
    Streams,
    Tokens,
    require_tokens,
    wanted,
)
from dsl.families import (
    Loss,
    MaskedFamily,
    MdlmShape,
    Objective,
    counted,
    masked,
    surprise,
    tallied,
)
from dsl.models import MDLM, DiT, ShapedNetwork


@dataclass(frozen=True)
class AdlmShape(MdlmShape):
    """The shape of ADLM's two stacks."""

    anchor_blocks: int | None = None
    """Blocks of the anchor network, out of n_blocks. Default: two thirds, the published proportion
    (12 and 6). With 0 it predicts from each token alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.llama is not None:
            raise ValueError("ADLM does not support llama blocks; remove the llama options")
        if not 0 <= self.anchors < self.n_blocks:
            raise ValueError(
                f"anchor_blocks must lie in 0 … n_blocks - 1, got {self.anchors} of {self.n_blocks}"
            )

    @property
    def anchors(self) -> int:
        """The blocks of the anchor network."""
        return 2 * self.n_blocks // 3 if self.anchor_blocks is None else self.anchor_blocks


@dataclass(frozen=True)
class AdlmOptions:
    """Options of ADLM's objective, with the published defaults."""

    threshold: int = 5
    """A token is an anchor if it occurs at most `threshold` times in its sequence."""
    weight: float = 3e-3
    """γ, the weight of the anchor loss relative to the bound."""
    ramp: float = 3e-3
    """The share of a run over which the weight rises from 0 to γ; with 0 it is γ from the start."""

    def __post_init__(self) -> None:
        if self.threshold < 0 or self.weight < 0 or not 0 <= self.ramp <= 1:
            raise ValueError(
                "threshold and weight must be at least 0 and ramp lie in [0, 1], "
                f"got {self.threshold}, {self.weight} and {self.ramp}"
            )


class AdlmModel(ShapedNetwork):
    """Two stacks that together are one denoiser of masked tokens."""

    def __init__(self, config: AdlmShape) -> None:
        super().__init__(config)
        self.config = config
        first = config.blocks | {"n_blocks": config.anchors}
        second = config.blocks | {"n_blocks": config.n_blocks - config.anchors}
        self.anchor = DiT(config.vocab_size, cond_dim=config.cond_dim, **first)
        # zero at first: training starts with the second stack as a plain masked network
        self.project = nn.Linear(config.vocab_size, config.hidden_dim, bias=False)
        nn.init.zeros_(self.project.weight)
        self.backbone = MDLM(config.vocab_size + 1, cond_dim=config.cond_dim, **second)

    def forward(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Return clean-token logits; the mask's own logit is left out, as SUBS does."""
        if not self.training:  # in training dropout is seeded by an item's place in the batch
            z, at = wanted(z, at)
        if not isinstance(z, Endpoints) or z.e is not None:
            raise ValueError(
                "an ADLM network reads masks and tokens only: use a masked path such as mdlm@T, "
                "remdm-loop@T, roar or causal, without soft evidence"
            )
        return self.both(z.tokens, at)[0]

    def both(self, tokens: Tokens, at: Mask | None = None) -> tuple[Rows, Logits]:
        """Return the denoiser's logits of the chosen rows, and the anchor network's logits of all.

        The input of the denoiser is x + W p: the embeddings of tokens and masks, and a learned
        projection of the anchor network's distribution p.
        """
        require_tokens(tokens, self.vocab_size, least=MASK)
        x = self.backbone.vocab_embed(tokens.masked_fill(tokens == MASK, self.vocab_size))
        guesses: Tensor = self.anchor.head(self.anchor.features(x))
        features = self.backbone.features(x + self.project(guesses.softmax(dim=-1)))
        logits = self.backbone.head(features if at is None else features[at])
        return logits[..., : self.vocab_size], guesses


class AdlmObjective(Objective):
    """MDLM's bound plus γ times the anchor loss at masked anchors, with the same weights."""

    model: AdlmModel
    weight: Float[Tensor, ""]

    def __init__(self, model: AdlmModel, config: AdlmOptions) -> None:
        super().__init__()
        self.model, self.config = model, config
        # a tensor, because a compiled forward would treat a number as a constant
        self.register_buffer("weight", torch.tensor(config.weight), persistent=False)

    def begin(self, progress: float) -> None:
        """Raise the weight along the ramp."""
        ramp = self.config.ramp
        self.weight.fill_(self.config.weight * (min(1.0, progress / ramp) if ramp else 1.0))

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Mask each sequence to its own time, and predict the masked tokens with both stacks."""
        at, hidden = masked(Linear(), tokens, streams, places, batch)
        logits, guesses = self.model.both(tokens.masked_fill(hidden, MASK), hidden)
        rare = hidden & anchors(tokens, self.model.vocab_size, self.config.threshold)
        losses = surprise(logits, tokens, hidden)
        anchored = surprise(guesses[rare], tokens, rare)
        parts = tallied(losses / at.wait) | {
            "masked": (losses.detach().sum(), hidden.sum()),
            "anchors": (anchored.detach().sum(), rare.sum()),
        }
        return Loss(((losses + self.weight * anchored) / at.wait).sum(), counted(tokens), parts)


def anchors(tokens: Tokens, vocab_size: int, threshold: int) -> Mask:
    """Return which tokens occur at most `threshold` times in their own sequence."""
    counts = torch.zeros(len(tokens), vocab_size, dtype=torch.long, device=tokens.device)
    counts = counts.scatter_add(1, tokens, torch.ones_like(tokens))
    return counts.gather(1, tokens) <= threshold


class AdlmFamily(MaskedFamily):
    """Anchored masked diffusion."""

    name = "adlm"
    summary = "masked diffusion that predicts rare tokens first: every masked path"
    Shape = AdlmShape
    Options = AdlmOptions
    Network = AdlmModel
    llama = False

    def objective(self, network: AdlmModel, options: AdlmOptions) -> Objective:
        """Train both stacks together."""
        return AdlmObjective(network, options)
