"""DUO's samplers of uniform-state diffusion: the greedy tail, and Ψ's predictor and corrector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from dsl.denoiser import Question, Timed
from dsl.kernel import Kernel
from dsl.sampling.ancestral import require_steps
from dsl.sampling.categorical import Draw
from dsl.sampling.sampler import REPLACED
from dsl.sampling.state import State
from dsl.sampling.timed import ask_at, drawn, noised
from dsl.streams import Randomness
from dsl.types import Logits, Tokens


@dataclass(frozen=True)
class Psi:
    """T equal steps of time, each a mixture of the ancestral step and of a way there and back."""

    num_steps: int
    kappa: float = 1.0
    """The weight of the ancestral step while t_off < t <= t_on; elsewhere it is 1."""
    t_on: float = 1.0
    t_off: float = 0.0
    greedy: bool = False
    """Whether the last step takes the most likely token of x̂_0 instead of drawing."""
    draw: Draw = Draw()
    """How x̂_0 is sharpened before any posterior is taken."""
    needs: ClassVar[frozenset[Question]] = REPLACED
    """From a mask there is no way there and back."""

    def __post_init__(self) -> None:
        require_steps(self.num_steps)
        if not 0 <= self.kappa <= 1:
            raise ValueError(f"kappa must lie in [0, 1], got {self.kappa}")
        if not 0 <= self.t_off <= self.t_on <= 1:
            raise ValueError(
                f"expected 0 <= t_off <= t_on <= 1, got t_off {self.t_off} and t_on {self.t_on}"
            )

    def steps(
        self, denoiser: Timed, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Yield the state after every step; its tokens are no masks."""
        if denoiser.kernel.noise != "uniform":
            raise ValueError(
                f"duo@T and psi@T undo uniform noise, and this network's noise is "
                f"{denoiser.kernel.noise}: it is served by timed@T"
            )
        state = noised(denoiser, start, generator) if start.step == 0 else start
        for k in range(start.step, self.num_steps):
            t, s = 1 - k / self.num_steps, 1 - (k + 1) / self.num_steps
            logits, state = ask_at(denoiser, state, t, state.free)
            p = self._back(denoiser, state.tokens, logits, t, s)
            state = drawn(state, p, denoiser.kernel, state.free, generator)
            state = replace(state, step=k + 1)
            yield state

    def _back(
        self, denoiser: Timed, tokens: Tokens, logits: Logits, t: float, s: float
    ) -> Float[Tensor, "b l v"]:
        """Return the distribution of x_s at every position."""
        b, length, v = logits.shape
        # the posterior of a sure x̂_0 at s = 0 is x̂_0 itself
        draw = replace(self.draw, temperature=0.0) if self.greedy and s == 0 else self.draw
        clean = draw.probabilities(logits.flatten(0, 1)).reshape(b, length, v)
        alpha_t, alpha_s = denoiser.alpha(clean.new_tensor([t, s])).unbind()
        kappa = self.kappa if self.t_off < t <= self.t_on else 1.0
        return psi_posterior(
            denoiser.kernel, tokens, clean, alpha_t.expand(b), alpha_s.expand(b), kappa
        )


def psi_posterior(
    kernel: Kernel,
    noisy: Tokens,
    clean: Float[Tensor, "b l v"],
    alpha_t: Float[Tensor, "b"],
    alpha_s: Float[Tensor, "b"],
    kappa: float,
) -> Float[Tensor, "b l v"]:
    """Return κ q(x_s | x_t, x̂_0) + (1 - κ) [α_s q(x_0 | x_t, x̂_0) + (1 - α_s) / V].

    The second part draws the clean token, the noisy one taken into account, and replaces it anew.
    Both lead from the marginal at t to the marginal at s, whatever κ.

    Args:
        kernel: Uniform noise.
        noisy: x_t.
        clean: x̂_0, a distribution of the clean token at every position.
        alpha_t: α at the later time, one for each sequence.
        alpha_s: α at the earlier time, which is larger.
        kappa: The weight of the ancestral step.
    """
    back = kernel.posterior(noisy, clean, alpha_t, alpha_s)
    if kappa == 1:
        return back
    token = kernel.posterior(noisy, clean, alpha_t, alpha_s.new_ones(alpha_s.shape))
    a_s = alpha_s.view(-1, 1, 1)
    return kappa * back + (1 - kappa) * (a_s * token + (1 - a_s) / kernel.vocab_size)
