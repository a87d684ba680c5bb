"""The posterior-view converter: a noisy state becomes a mixture of tokens (section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dsl.core.types import Codebook, Noisy

CHUNK_ELEMENTS = 2**24
"""Mixture weights computed at a time: 64 MB in float32."""

KEPT_ELEMENTS = 2**27
"""Weights that autograd may keep for backward: half a gigabyte. More are recomputed."""


class TableValues(nn.Module):
    """Mix rows of a (v + 1) x h table, the last of them [MASK]'s: MDLM's input embedding."""

    def __init__(self, vocab_size: int, hidden_dim: int) -> None:
        super().__init__()
        # MDLM's initialisation: U(±1/√h), so a row has norm near 1/√3.
        bound = 1 / math.sqrt(hidden_dim)
        self.weight = nn.Parameter(torch.empty(vocab_size + 1, hidden_dim).uniform_(-bound, bound))

    def forward(self, q: Float[Tensor, "n w"], codebook: Codebook) -> Float[Tensor, "n h"]:
        """Return Σ_v q_v · row_v."""
        return q @ self.weight.to(q.dtype)


class UnitValues(nn.Module):
    """Mix the unit embeddings, [MASK] being the zero vector, then map to the hidden width.

    This is the paper's equation 11: the mixture never leaves the unit ball.
    """

    def __init__(self, codebook_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.project = nn.Linear(codebook_dim, hidden_dim)

    def mixture(self, q: Float[Tensor, "n w"], codebook: Codebook) -> Float[Tensor, "n d"]:
        """Return m = Σ_v q_v x_v, with ‖m‖ ≤ 1."""
        return q[:, :-1] @ codebook.to(q.dtype)

    def forward(self, q: Float[Tensor, "n w"], codebook: Codebook) -> Float[Tensor, "n h"]:
        """Return the mixture in the backbone's width."""
        hidden: Tensor = self.project(self.mixture(q, codebook).to(self.project.weight.dtype))
        return hidden


class Converter(nn.Module):
    """Compute q(v | z) = softmax(β⟨z, k_v⟩ + b_v) and mix values by it (equation 11).

    The keys are the codebook and, for [MASK], the zero vector: its logit is b_MASK alone, so at
    z = 0 the state reads [MASK] and far from 0 it cannot.
    """

    def __init__(
        self,
        vocab_size: int,
        values: TableValues | UnitValues,
        *,
        beta: float = 1.0,
        mask_probability: float = 0.5,
    ) -> None:
        super().__init__()
        self.values = values
        self.beta = nn.Parameter(torch.tensor([float(beta)]))  # one axis: FSDP2 wants one
        self.bias = nn.Parameter(torch.zeros(vocab_size + 1))
        self.set_mask_probability(mask_probability)

    def set_mask_probability(self, probability: float) -> None:
        """Set b_MASK so that q(MASK | z = 0) has this value, given the biases of the tokens."""
        if not 0 < probability < 1:
            raise ValueError(f"q(MASK | z = 0) must lie in (0, 1), got {probability}")
        odds = math.log(probability / (1 - probability))
        with torch.no_grad():
            self.bias[-1] = odds + self.bias[:-1].logsumexp(dim=0)

    def weights(self, z: Float[Tensor, "n d"], codebook: Codebook) -> Float[Tensor, "n w"]:
        """Return q(· | z) over the v tokens and, last, [MASK].

        In float32 whatever the model's precision: at γ_max the logits differ by a hundred nats,
        and bfloat16 would round away the difference between close tokens.
        """
        with torch.autocast(z.device.type, enabled=False):
            exact = torch.promote_types(torch.float32, z.dtype)
            keys = nn.functional.pad(codebook.to(exact), (0, 0, 0, 1))  # [MASK] has the zero key
            scores = nn.functional.linear(
                self.beta.to(exact) * z.to(exact), keys, self.bias.to(exact)
            )
            # At γ_max all weights but one would be subnormal numbers, which CPUs multiply ten
            # times more slowly. A floor of e^-80 of the largest changes nothing else, and in place
            # it costs no memory: the softmax's own gradient is all that flows back.
            with torch.no_grad():
                scores.clamp_(min=scores.amax(dim=-1, keepdim=True) - 80)
            return torch.softmax(scores, dim=-1)

    def forward(self, z: Noisy, codebook: Codebook) -> Float[Tensor, "b l h"]:
        """Convert every position, a chunk of positions at a time when the vocabulary is large."""
        rows = z.flatten(0, 1)
        chunk = max(1, CHUNK_ELEMENTS // (codebook.shape[0] + 1))
        run: Callable[..., Tensor] = self._convert
        if rows.shape[0] * codebook.shape[0] > KEPT_ELEMENTS and torch.is_grad_enabled():
            # Otherwise autograd would keep the softmax of every chunk for backward.
            run = _recomputed(self._convert)
        mixed = torch.cat([run(part, codebook) for part in rows.split(chunk)])
        return mixed.reshape(*z.shape[:2], mixed.shape[-1])

    def _convert(self, z: Float[Tensor, "n d"], codebook: Codebook) -> Float[Tensor, "n h"]:
        converted: Tensor = self.values(self.weights(z, codebook), codebook)
        return converted


def _recomputed(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(*arguments: Tensor) -> Tensor:
        result = checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
        assert isinstance(result, Tensor)
        return result

    return run
