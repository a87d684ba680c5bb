"""DUO: uniform-state diffusion with a Gaussian curriculum (Sahoo et al., 2025).

Tokens are replaced by any other. Early in training the network sees Gaussian latents whose argmax
is the noisy token. Samplers: the ancestral one with a greedy last step, and Ψ with a corrector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from dsl.apps.zoo.kernel import Kernel, Noise
from dsl.apps.zoo.timed import (
    Replaced,
    Timed,
    TimedAncestral,
    TimedFamily,
    TimedModel,
    TimedShape,
    at_step,
)
from dsl.core import Logits, Randomness, Streams, Tokens, normal, uniform
from dsl.families import Loss, Objective, counted, stratified, tallied
from dsl.likelihoods import Effort, Estimate, Estimator, Kind, require_draws, require_logits
from dsl.samplers import Draw, Sampler, State

FARTHEST, SPACING = 9.0, 0.1
"""Limits and grid of the Gaussian integral. 2e-19 of the mass lies beyond 9σ, and the trapezoid
rule on this smooth integrand is within 1e-11 for vocabularies of up to 200,000."""

LARGEST_RATIO, ROWS = 12.0, 2**13
"""The table of T⁻¹ in α̃/σ̃. At 12, 1 - α is below 1e-11; interpolation is within 1e-7."""

LEAST_TIME = 1e-3
"""The lower limit of the integral over times, as in the original: the weight is 1/t, and few tokens
are replaced below it."""


def transformed(signal: Float[Tensor, "n"], vocab_size: int) -> Float[Tensor, "n"]:
    """Return the α of the uniform process for the α̃ of the Gaussian one.

    T(α̃) = (V p - 1) / (V - 1), where p = ∫ N(ε) Φ(ε + α̃/σ̃)^{V-1} dε is the probability that the
    token's own coordinate exceeds all V - 1 others.
    """
    signal = signal.double()
    return _of_ratio(signal / (1 - signal.square()).sqrt(), vocab_size)


def signal_for(alpha: Float[Tensor, "n"], vocab_size: int) -> Float[Tensor, "n"]:
    """Return T⁻¹(α), the α̃ at which the argmax is unchanged with probability α; from a table."""
    ratios, alphas = _table(vocab_size, alpha.device)
    alpha = alpha.double().contiguous()
    right = torch.searchsorted(alphas, alpha).clamp(1, ROWS - 1)
    low, high = alphas[right - 1], alphas[right]
    share = ((alpha - low) / (high - low).clamp(min=1e-16)).clamp(0, 1)
    ratio = torch.lerp(ratios[right - 1], ratios[right], share)
    return ratio / (1 + ratio.square()).sqrt()


def latents(
    tokens: Tokens, alpha: Float[Tensor, "b"], vocab_size: int, *, generator: Randomness = None
) -> Logits:
    """Draw w = α̃ x + σ̃ ε at every position, where α̃ gives the argmax the α of its sequence."""
    signal = signal_for(alpha, vocab_size).view(-1, 1, 1)
    noise = normal((*tokens.shape, vocab_size), generator=generator, device=tokens.device)
    w = (1 - signal.square()).sqrt().to(noise.dtype) * noise
    own = signal.to(w.dtype).expand(*tokens.shape, 1)
    return w.scatter_add(-1, tokens.unsqueeze(-1), own)


@cache
def _table(
    vocab_size: int, device: torch.device
) -> tuple[Float[Tensor, "rows"], Float[Tensor, "rows"]]:
    """Tabulate α over α̃/σ̃; the running maximum removes rounding errors near α = 1."""
    ratios = torch.linspace(0, LARGEST_RATIO, ROWS, dtype=torch.float64, device=device)
    return ratios, _of_ratio(ratios, vocab_size).cummax(dim=0).values


def _of_ratio(ratio: Float[Tensor, "n"], vocab_size: int) -> Float[Tensor, "n"]:
    """Return α for α̃/σ̃; integrates 1 - α, which is accurate as α → 1."""
    if vocab_size < 2:
        raise ValueError(f"uniform noise needs at least 2 tokens, got {vocab_size}")
    points = round(2 * FARTHEST / SPACING) + 1
    epsilon = torch.linspace(-FARTHEST, FARTHEST, points, dtype=torch.float64, device=ratio.device)
    weight = (-epsilon.square() / 2).softmax(dim=0)
    others = (vocab_size - 1) * torch.special.log_ndtr(ratio.unsqueeze(-1) + epsilon)
    lost: Tensor = -others.expm1() @ weight
    return 1 - vocab_size / (vocab_size - 1) * lost


@dataclass(frozen=True)
class DuoShape(TimedShape):
    """The shape of a network for uniform noise."""

    noise: Noise = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise != "uniform" or self.vocab_size < 2:
            raise ValueError(
                "DUO needs uniform noise over at least 2 tokens, "
                f"got {self.noise} noise over {self.vocab_size}"
            )


class DuoModel(TimedModel):
    """A timed network that also accepts mixtures of tokens."""

    def at_mixture(self, weights: Logits, t: Float[Tensor, "b"]) -> Logits:
        """Return logits as `at_time` does; each position is a weighted mixture of token rows."""
        table = self.backbone.vocab_embed.embedding[: self.vocab_size]
        return self._from_rows(weights.to(table.dtype) @ table, t)


@dataclass(frozen=True)
class DuoOptions:
    """The curriculum: its length, and the temperature of its inputs."""

    curriculum: float = 0.5
    """The share of a run that is trained on Gaussian latents."""
    temperature: float = 1e-3
    """τ: the input is softmax(w / τ)."""

    def __post_init__(self) -> None:
        if not 0 <= self.curriculum <= 1 or not self.temperature > 0:
            raise ValueError(
                "curriculum must lie in [0, 1] and temperature be positive, "
                f"got {self.curriculum} and {self.temperature}"
            )


class DuoObjective(Objective):
    """The continuous-time bound; during the curriculum the input is a latent with argmax x_t.

    As in the original, times below 1e-3 and the read-out are left out.
    """

    model: DuoModel

    def __init__(self, model: DuoModel, config: DuoOptions) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.begin(0.0)

    def begin(self, progress: float) -> None:
        """End the curriculum after its share of the run."""
        self.softly = progress < self.config.curriculum

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Draw one time for each sequence, stratified over the global batch."""
        u = stratified(streams, places, batch, tokens.device).squeeze(1)
        t = (1 - LEAST_TIME) * u + LEAST_TIME
        alpha, slope = self.model.alpha(t), self.model.alpha.slope(t)
        noisy, logits = self._asked(tokens, t, alpha, streams)
        losses = (1 - LEAST_TIME) * jump_nats(noisy, tokens, logits.float(), alpha, slope)
        parts = tallied(losses, kept=noisy == tokens, replaced=noisy != tokens)
        return Loss(losses.sum(), counted(tokens), parts)

    def _asked(
        self,
        tokens: Tokens,
        t: Float[Tensor, "b"],
        alpha: Float[Tensor, "b"],
        streams: Streams,
    ) -> tuple[Tokens, Logits]:
        """Draw x_t and predict x̂_0 from it, or from a latent whose argmax it is."""
        v = self.model.vocab_size
        if not self.softly:
            noisy = self.model.kernel.corrupt(tokens, alpha, generator=streams)
            return noisy, self.model.at_time(noisy, t)
        w = latents(tokens, alpha, v, generator=streams)
        soft = (w / self.config.temperature).softmax(dim=-1)
        return w.argmax(dim=-1), self.model.at_mixture(soft, t)


@dataclass(frozen=True)
class UniformBound:
    """-log P ≤ ∫_{t_0}^1 Σ_i E ℓ_i dt - Σ_i E log q(x_i | x_{t_0}, x̂_0), ℓ being `jump_nats`.

    At t = 1 there is only noise: no prior term, and the integrand is 0. The read-out from t_0 to 0
    is one step of the ancestral sampler, which makes the sum a bound for any t_0.
    """

    replicates: int = 8
    draws: int = 8
    """Times per replicate, one in each of `draws` strata; the read-out at t_0 is one more call."""
    least_time: float = LEAST_TIME
    """t_0."""
    batch_size: int = 256
    label: ClassVar[str] = "duo-nelbo"
    kind: ClassVar[Kind] = "bound"

    def __post_init__(self) -> None:
        require_draws(self.replicates, self.draws)
        if not 0 < self.least_time < 1:
            raise ValueError(f"least_time must lie in (0, 1), got {self.least_time}")

    @torch.no_grad()
    def __call__(
        self, denoiser: Timed, tokens: Tokens, *, generator: Randomness = None
    ) -> Estimate:
        """Estimate the bound of every sequence."""
        if denoiser.kernel.noise != "uniform":
            raise ValueError(f"this bound needs uniform noise, got {denoiser.kernel.noise}")
        b, length = tokens.shape
        r, m = self.replicates, self.draws
        u = uniform((b, r, m), generator=generator, dtype=torch.float64, device=tokens.device)
        u = (torch.arange(m, device=tokens.device) + u) / m
        inside = self.least_time + (1 - self.least_time) * u
        # the last draw of every replicate is the read-out at t_0
        t = torch.cat([inside, torch.full_like(inside[:, :, :1], self.least_time)], dim=2)
        corrupt = denoiser.kernel.corrupt
        columns = t.flatten(1).unbind(dim=1)  # one draw at a time: a sequence has one stream
        noisy = [corrupt(tokens, denoiser.alpha(at), generator=generator) for at in columns]
        jumps, readouts = self._asked(denoiser, tokens, torch.stack(noisy, dim=1), t.flatten())
        shape = (b, r, m + 1, length)
        integral = (1 - self.least_time) * jumps.reshape(shape)[:, :, :-1].mean(dim=2)
        return Estimate(integral + readouts.reshape(shape)[:, :, -1])

    def _asked(
        self, denoiser: Timed, tokens: Tokens, noisy: Tensor, t: Float[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n l"], Float[Tensor, "n l"]]:
        """Return ℓ and the read-out nats of every noisy sequence, in batches."""
        clean = tokens.unsqueeze(1).expand_as(noisy).flatten(0, 1)
        jumps, readouts = [], []
        for rows in torch.arange(len(t), device=t.device).split(self.batch_size):
            x_t, x_0 = noisy.flatten(0, 1)[rows], clean[rows]
            alpha, slope = denoiser.alpha(t[rows]), denoiser.alpha.slope(t[rows])
            logits = denoiser.at_time(x_t, t[rows]).double()
            require_logits(logits)
            jumps.append(jump_nats(x_t, x_0, logits, alpha, slope))
            readouts.append(readout_nats(denoiser.kernel, x_t, x_0, logits, alpha))
        return torch.cat(jumps), torch.cat(readouts)


def jump_nats(
    noisy: Tokens,
    clean: Tokens,
    logits: Logits,
    alpha: Float[Tensor, "b"],
    slope: Float[Tensor, "b"],
) -> Float[Tensor, "b l"]:
    """Return ℓ, the limit of KL(q(x_s | x_t, x_0) ‖ q(x_s | x_t, x̂_0)) / (t - s) as s → t.

    With a = q(x_t = · | x_0) and â the same for x̂_0, a token jumps back from x_t to z at the rate
    -α'/(αV) a_z/a_{x_t}, and the KL of two jump processes, summed over z in closed form, is

        ℓ = -α' / (αV a_{x_t}) [KL(a ‖ â) + ρ - 1 - log ρ],   ρ = a_{x_t} / â_{x_t}.

    Both parts are at least 0. Everything is of order α² as α → 0, so it is computed in log(V a) by
    log1p.

    Args:
        noisy: x_t.
        clean: x_0.
        logits: Logits of x̂_0.
        alpha: α of each sequence.
        slope: dα/dt of each sequence.
    """
    v = logits.shape[-1]
    alpha, slope = (one.to(logits.dtype).unsqueeze(1) for one in (alpha, slope))
    log_model = torch.log1p(alpha.unsqueeze(-1) * (v * logits.softmax(dim=-1) - 1))  # log V â
    at_clean = log_model.gather(-1, clean.unsqueeze(-1)).squeeze(-1)
    at_noisy = log_model.gather(-1, noisy.unsqueeze(-1)).squeeze(-1)
    log_same, log_other = torch.log1p(alpha * (v - 1)), torch.log1p(-alpha)  # log V a: two values
    others = (v - 1) * log_other - (log_model.sum(dim=-1) - at_clean)
    kl = (log_same.exp() * (log_same - at_clean) + log_other.exp() * others) / v
    log_own = torch.where(noisy == clean, log_same, log_other)
    log_rho = log_own - at_noisy
    # rounding can reach t = 1, where the bracket and α are both 0
    weight = -slope / (alpha.clamp(min=torch.finfo(alpha.dtype).tiny) * log_own.exp())
    return weight * (kl + log_rho.expm1() - log_rho)


def readout_nats(
    kernel: Kernel, noisy: Tokens, clean: Tokens, logits: Logits, alpha: Float[Tensor, "b"]
) -> Float[Tensor, "b l"]:
    """Return -log q(x_0 | x_t, x̂_0), the cost of the step from x_t to clean tokens."""
    p = kernel.posterior(noisy, logits.softmax(dim=-1), alpha, torch.ones_like(alpha))
    return -p.gather(-1, clean.unsqueeze(-1)).squeeze(-1).log()


class DuoFamily(TimedFamily):
    """Uniform-state diffusion."""

    name = "duo"
    summary = "uniform-state diffusion with a Gaussian curriculum: its own samplers and bound"
    Shape = DuoShape
    Options = DuoOptions
    Network = DuoModel
    protocol = Replaced
    validated = ("duo-nelbo",)

    def objective(self, network: DuoModel, options: DuoOptions) -> Objective:
        """Train by the continuous-time bound."""
        return DuoObjective(network, options)

    def estimators(self, network: DuoModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the continuous-time bound; one call per replicate is the read-out."""
        r, m = effort.replicates, effort.draws
        return [UniformBound(r, m - 1, batch_size=effort.batch_size)]


@dataclass(frozen=True)
class Psi(TimedAncestral):
    """T equal steps of time, each a mixture of an ancestral step and a corrector step."""

    kappa: float = 1.0
    """The weight of the ancestral step while t_off < t <= t_on; elsewhere it is 1."""
    t_on: float = 1.0
    t_off: float = 0.0
    greedy: bool = False
    """Whether the last step takes the most likely token of x̂_0 instead of drawing."""
    asks: ClassVar[type] = Replaced
    """The corrector replaces tokens, so masks are not supported."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.kappa <= 1:
            raise ValueError(f"kappa must lie in [0, 1], got {self.kappa}")
        if not 0 <= self.t_off <= self.t_on <= 1:
            raise ValueError(
                f"expected 0 <= t_off <= t_on <= 1, got t_off {self.t_off} and t_on {self.t_on}"
            )

    def steps(
        self, denoiser: Timed, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        """Yield the state after every step; it contains no masks."""
        if denoiser.kernel.noise != "uniform":
            raise ValueError(
                f"duo@T and psi@T need uniform noise, got {denoiser.kernel.noise}: use timed@T"
            )
        return super().steps(denoiser, start, generator=generator)

    def posterior(
        self, denoiser: Timed, noisy: Tokens, logits: Logits, t: float, s: float
    ) -> Float[Tensor, "b l v"]:
        """Return the distribution of x_s at every position."""
        # if x̂_0 is certain, so is the posterior at s = 0
        draw = replace(self.draw, temperature=0.0) if self.greedy and s == 0 else self.draw
        clean, alpha_t, alpha_s = at_step(denoiser, logits, draw, t, s)
        kappa = self.kappa if self.t_off < t <= self.t_on else 1.0
        return psi_posterior(denoiser.kernel, noisy, clean, alpha_t, alpha_s, kappa)


def psi_posterior(
    kernel: Kernel,
    noisy: Tokens,
    clean: Float[Tensor, "b l v"],
    alpha_t: Float[Tensor, "b"],
    alpha_s: Float[Tensor, "b"],
    kappa: float,
) -> Float[Tensor, "b l v"]:
    """Return κ q(x_s | x_t, x̂_0) + (1 - κ) [α_s q(x_0 | x_t, x̂_0) + (1 - α_s) / V].

    The second part draws a clean token given the noisy one, then adds noise again. Both parts map
    the marginal at t to the marginal at s, for any κ.

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


def duo(num_steps: int, *, greedy: bool = False, draw: Draw = Draw()) -> Sampler:
    """DUO's ancestral sampler of uniform noise; `greedy` ends with the most likely tokens."""
    return Psi(num_steps, draw, greedy=greedy)


def psi(
    num_steps: int,
    *,
    kappa: float = 0.95,
    t_on: float = 0.5,
    t_off: float = 0.1,
    greedy: bool = False,
    draw: Draw = Draw(),
) -> Sampler:
    """DUO's Ψ-sampler; the defaults are those of the official script for images."""
    return Psi(num_steps, draw, kappa, t_on, t_off, greedy)
