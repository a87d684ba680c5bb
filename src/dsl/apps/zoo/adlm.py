"""ADLM: an anchor network guesses the rare tokens first, and the denoiser reads its guesses.

Both are stacks of MDLM's blocks, together as many as another family's one network has. They are
trained together: the denoiser by MDLM's bound, the anchor network on what is rare in its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.core import (
    MASK,
    Denoiser,
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
    Family,
    Level,
    Loss,
    Masked,
    MdlmShape,
    Objective,
    counted,
    masked,
    surprise,
    tallied,
)
from dsl.likelihoods import Effort, Estimator, Roar
from dsl.models import MDLM, DiT, ShapedNetwork


@dataclass(frozen=True)
class AdlmShape(MdlmShape):
    """The shape of ADLM's two stacks."""

    anchor_blocks: int | None = None
    """How many of the n_blocks are the anchor network's; without a number two thirds, which is the
    published proportion (12 blocks before 6). With none it guesses from each token alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.llama is not None:
            raise ValueError("ADLM's stacks are MDLM's blocks: leave the options of llama out")
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
    """What ADLM's objective leaves open; the defaults are the published ones."""

    threshold: int = 5
    """A token is an anchor if it occurs at most so often in its sequence."""
    weight: float = 3e-3
    """γ: what the loss of an anchor counts beside the bound."""
    ramp: float = 3e-3
    """The share of a run over which the weight rises from 0 to γ; 0 is at once."""

    def __post_init__(self) -> None:
        if self.threshold < 0 or self.weight < 0 or not 0 <= self.ramp <= 1:
            raise ValueError(
                "threshold and weight must be at least 0 and ramp lie in [0, 1], "
                f"got {self.threshold}, {self.weight} and {self.ramp}"
            )


class AdlmModel(ShapedNetwork):
    """Two stacks: every masked path serves them, because together they are one denoiser."""

    def __init__(self, config: AdlmShape) -> None:
        super().__init__(config)
        self.config = config
        first = config.blocks | {"n_blocks": config.anchors}
        second = config.blocks | {"n_blocks": config.n_blocks - config.anchors}
        self.anchor = DiT(config.vocab_size, cond_dim=config.cond_dim, **first)
        # Silent at first: training begins with the masked network that the second stack is.
        self.project = nn.Linear(config.vocab_size, config.hidden_dim, bias=False)
        nn.init.zeros_(self.project.weight)
        self.backbone = MDLM(config.vocab_size + 1, cond_dim=config.cond_dim, **second)

    def forward(self, z: Noisy | Endpoints, /, *, at: Mask | None = None) -> Rows:
        """Return clean-token logits; the mask's own logit is left out, as SUBS does."""
        if not self.training:  # in training every item keeps its place: dropout is seeded by it
            z, at = wanted(z, at)
        if not isinstance(z, Endpoints) or z.e is not None:
            raise ValueError(
                "an ADLM network knows masks and tokens only: use a masked path such as mdlm@T, "
                "remdm-loop@T, roar or causal, and no soft evidence"
            )
        return self.both(z.tokens, at)[0]

    def both(self, tokens: Tokens, at: Mask | None = None) -> tuple[Rows, Logits]:
        """Return the denoiser's logits of the chosen rows, and the anchor network's of all.

        The denoiser reads x + W p: the embeddings of tokens and masks, and at every position what
        the anchor network's distribution p makes of a table of its own.
        """
        require_tokens(tokens, self.vocab_size, least=MASK)
        x = self.backbone.vocab_embed(tokens.masked_fill(tokens == MASK, self.vocab_size))
        guesses: Tensor = self.anchor.head(self.anchor.features(x))
        features = self.backbone.features(x + self.project(guesses.softmax(dim=-1)))
        logits = self.backbone.head(features if at is None else features[at])
        return logits[..., : self.vocab_size], guesses


class AdlmObjective(Objective):
    """MDLM's bound, and γ times the anchor network's loss at the masked anchors, weighed alike."""

    model: AdlmModel
    weight: Float[Tensor, ""]

    def __init__(self, model: AdlmModel, config: AdlmOptions) -> None:
        super().__init__()
        self.model, self.config = model, config
        # a tensor, because a compiled forward would take a number for a constant
        self.register_buffer("weight", torch.tensor(config.weight), persistent=False)

    def begin(self, progress: float) -> None:
        """Let the weight rise over the ramp."""
        ramp = self.config.ramp
        self.weight.fill_(self.config.weight * (min(1.0, progress / ramp) if ramp else 1.0))

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Mask each sequence to its own time, and ask both stacks what was there."""
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
    """Choose the tokens that occur at most `threshold` times in their own sequence."""
    counts = torch.zeros(len(tokens), vocab_size, dtype=torch.long, device=tokens.device)
    counts = counts.scatter_add(1, tokens, torch.ones_like(tokens))
    return counts.gather(1, tokens) <= threshold


class AdlmFamily(Family):
    """Anchored masked diffusion."""

    name = "adlm"
    summary = "masked diffusion that guesses rare tokens first: every masked path"
    Shape = AdlmShape
    Options = AdlmOptions
    protocol = Denoiser
    validated = ("roar",)
    llama = False

    def build(self, shape: AdlmShape) -> nn.Module:
        """Make an untrained network."""
        return AdlmModel(shape)

    def objective(self, network: AdlmModel, options: AdlmOptions) -> Objective:
        """Train both stacks together."""
        return AdlmObjective(network, options)

    def estimators(self, network: AdlmModel, effort: Effort) -> Sequence[Estimator]:
        """Score by ROAR: the two stacks are one masked network, and its bound is MDLM's."""
        return [Roar(effort.replicates, effort.draws, effort.batch_size)]

    def levels(self, network: AdlmModel) -> Sequence[Level]:
        """Ask at masks only."""
        return [Masked()]
