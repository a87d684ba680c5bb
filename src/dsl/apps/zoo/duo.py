"""DUO's samplers of uniform-state diffusion: the greedy tail, and Ψ's predictor and corrector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dsl.apps.zoo.kernel import Kernel, Noise
from dsl.apps.zoo.protocols import AtTime, Replaced, Timed
from dsl.apps.zoo.timed import TimedModel, TimedShape, ask_at, drawn, noised
from dsl.core import Logits, Randomness, Streams, Tokens, normal, uniform
from dsl.families import Family, Level, Loss, Objective, counted, stratified, tallied
from dsl.likelihoods import Effort, Estimate, Estimator, Kind, require_draws, require_logits
from dsl.samplers import Draw, Sampler, State, require_steps

FARTHEST, SPACING = 9.0, 0.1
"""Where the Gaussian integral is cut, and its grid: beyond 9σ lie 2e-19 of the mass, and on so
smooth an integrand the trapezoid rule errs by less than 1e-11, up to vocabularies of 200,000."""

LARGEST_RATIO, ROWS = 12.0, 2**13
"""The table of T⁻¹ in α̃/σ̃: at 12, 1 - α is below 1e-11; between its rows α errs by 1e-7."""


def transformed(signal: Float[Tensor, "n"], vocab_size: int) -> Float[Tensor, "n"]:
    """Return the α of the uniform process for the α̃ of the Gaussian one.

    T(α̃) = (V p - 1) / (V - 1), where p = ∫ N(ε) Φ(ε + α̃/σ̃)^{V-1} dε is the probability that the
    token's own coordinate exceeds all V - 1 others.
    """
    signal = signal.double()
    return _of_ratio(signal / (1 - signal.square()).sqrt(), vocab_size)


def signal_for(alpha: Float[Tensor, "n"], vocab_size: int) -> Float[Tensor, "n"]:
    """Return T⁻¹(α), the α̃ whose argmax is left alone with probability α; from a table."""
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
    """Draw w = α̃ x + σ̃ ε at every position, each sequence at the α that its argmax shall have."""
    signal = signal_for(alpha, vocab_size).view(-1, 1, 1)
    noise = normal((*tokens.shape, vocab_size), generator=generator, device=tokens.device)
    w = (1 - signal.square()).sqrt().to(noise.dtype) * noise
    own = signal.to(w.dtype).expand(*tokens.shape, 1)
    return w.scatter_add(-1, tokens.unsqueeze(-1), own)


@cache
def _table(
    vocab_size: int, device: torch.device
) -> tuple[Float[Tensor, "rows"], Float[Tensor, "rows"]]:
    """Tabulate α over α̃/σ̃, never falling: where α is 1 up to rounding, rounding could."""
    ratios = torch.linspace(0, LARGEST_RATIO, ROWS, dtype=torch.float64, device=device)
    return ratios, _of_ratio(ratios, vocab_size).cummax(dim=0).values


def _of_ratio(ratio: Float[Tensor, "n"], vocab_size: int) -> Float[Tensor, "n"]:
    """Integrate for α̃/σ̃; what is lost rather than what is kept, which is exact as α → 1."""
    if vocab_size < 2:
        raise ValueError(f"uniform noise needs at least 2 tokens, got {vocab_size}")
    points = round(2 * FARTHEST / SPACING) + 1
    epsilon = torch.linspace(-FARTHEST, FARTHEST, points, dtype=torch.float64, device=ratio.device)
    weight = (-epsilon.square() / 2).softmax(dim=0)
    others = (vocab_size - 1) * torch.special.log_ndtr(ratio.unsqueeze(-1) + epsilon)
    lost: Tensor = -others.expm1() @ weight
    return 1 - vocab_size / (vocab_size - 1) * lost


LEAST_TIME = 1e-3
"""Where the integral ends, as in the original: below it few tokens are replaced, at weight 1/t."""


@dataclass(frozen=True)
class UniformBound:
    """-log P ≤ ∫_{t_0}^1 Σ_i E ℓ_i dt - Σ_i E log q(x_i | x_{t_0}, x̂_0), ℓ being `jump_nats`.

    At t = 1 all is noise, so there is no prior term and the integrand is 0. The last stretch, from
    t_0 to 0, is one step of the ancestral sampler: with it the sum is a bound at any t_0.
    """

    replicates: int = 8
    draws: int = 8
    """Times in a replicate, one in each of as many strata; the read-out at t_0 is one call more."""
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
        require_uniform(denoiser.kernel)
        b, length = tokens.shape
        r, m = self.replicates, self.draws
        u = uniform((b, r, m), generator=generator, dtype=torch.float64, device=tokens.device)
        u = (torch.arange(m, device=tokens.device) + u) / m
        inside = self.least_time + (1 - self.least_time) * u
        # the last draw of every replicate is the read-out at t_0
        t = torch.cat([inside, torch.full_like(inside[:, :, :1], self.least_time)], dim=2)
        corrupt = denoiser.kernel.corrupt
        columns = t.flatten(1).unbind(dim=1)  # a draw at a time: a sequence has one stream
        noisy = [corrupt(tokens, denoiser.alpha(at), generator=generator) for at in columns]
        jumps, readouts = self._asked(denoiser, tokens, torch.stack(noisy, dim=1), t.flatten())
        shape = (b, r, m + 1, length)
        integral = (1 - self.least_time) * jumps.reshape(shape)[:, :, :-1].mean(dim=2)
        return Estimate(integral + readouts.reshape(shape)[:, :, -1])

    def _asked(
        self, denoiser: Timed, tokens: Tokens, noisy: Tensor, t: Float[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n l"], Float[Tensor, "n l"]]:
        """Return ℓ and the nats of a read-out of every noisy sequence, in batches."""
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

    With a = q(x_t = · | x_0) and â the same of x̂_0, a token jumps back from x_t to z at the rate
    -α'/(αV) a_z/a_{x_t}, and the KL of two jump processes, summed over z in closed form, is

        ℓ = -α' / (αV a_{x_t}) [KL(a ‖ â) + ρ - 1 - log ρ],   ρ = a_{x_t} / â_{x_t}.

    Both parts are at least 0. All is of order α² as α → 0, so it is written in log(V a), by log1p.

    Args:
        noisy: x_t.
        clean: x_0.
        logits: Of x̂_0.
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
    # at t = 1, which rounding can reach, the bracket is 0 and α is too
    weight = -slope / (alpha.clamp(min=torch.finfo(alpha.dtype).tiny) * log_own.exp())
    return weight * (kl + log_rho.expm1() - log_rho)


def readout_nats(
    kernel: Kernel, noisy: Tokens, clean: Tokens, logits: Logits, alpha: Float[Tensor, "b"]
) -> Float[Tensor, "b l"]:
    """Return -log q(x_0 | x_t, x̂_0), what the step from x_t to the text itself costs."""
    p = kernel.posterior(noisy, logits.softmax(dim=-1), alpha, torch.ones_like(alpha))
    return -p.gather(-1, clean.unsqueeze(-1)).squeeze(-1).log()


def require_uniform(kernel: Kernel) -> None:
    """Refuse a process that masks."""
    if kernel.noise != "uniform":
        raise ValueError(f"this bound is of uniform noise; the network's noise is {kernel.noise}")


TIMES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where confidence is judged."""


@dataclass(frozen=True)
class DuoShape(TimedShape):
    """The shape of a network of uniform noise."""

    noise: Noise = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise != "uniform" or self.vocab_size < 2:
            raise ValueError(
                "DUO needs uniform noise over at least 2 tokens, "
                f"got {self.noise} noise over {self.vocab_size}"
            )


@dataclass(frozen=True)
class DuoOptions:
    """How long the curriculum lasts, and how soft its inputs are."""

    curriculum: float = 0.5
    """The share of a run in which the network is shown Gaussian latents; 0 is none."""
    temperature: float = 1e-3
    """τ: the network is shown softmax(w / τ)."""

    def __post_init__(self) -> None:
        if not 0 <= self.curriculum <= 1 or not self.temperature > 0:
            raise ValueError(
                "curriculum must lie in [0, 1] and temperature be positive, "
                f"got {self.curriculum} and {self.temperature}"
            )


class DuoModel(TimedModel):
    """A network with a time that can also be shown mixtures of tokens."""

    def at_mixture(self, weights: Logits, t: Float[Tensor, "b"]) -> Logits:
        """Return logits as `at_time` does, each position being a mixture of the tokens' rows."""
        table = self.backbone.vocab_embed.embedding[: self.vocab_size]
        return self._from_rows(weights.to(table.dtype) @ table, t)


class DuoObjective(Objective):
    """The continuous-time bound; at first on the argmax of latents of which the network sees more.

    As in the original, times below 1e-3 are left out, and with them the read-out.
    """

    model: DuoModel

    def __init__(self, model: DuoModel, config: DuoOptions) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.begin(0.0)

    def begin(self, progress: float) -> None:
        """End the curriculum when its share of the run is over."""
        self.softly = progress < self.config.curriculum

    def forward(self, tokens: Tokens, streams: Streams, places: range, batch: int) -> Loss:
        """Spend each sequence on one time, the times stratified over the global batch."""
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
        """Draw x_t and ask for x̂_0, given x_t or the latent whose argmax it is."""
        v = self.model.vocab_size
        if not self.softly:
            noisy = self.model.kernel.corrupt(tokens, alpha, generator=streams)
            return noisy, self.model.at_time(noisy, t)
        w = latents(tokens, alpha, v, generator=streams)
        soft = (w / self.config.temperature).softmax(dim=-1)
        return w.argmax(dim=-1), self.model.at_mixture(soft, t)


class DuoFamily(Family):
    """Uniform-state diffusion."""

    name = "duo"
    summary = "uniform-state diffusion with a Gaussian curriculum: its own samplers and bound"
    Shape = DuoShape
    Options = DuoOptions
    protocol = Replaced
    validated = ("duo-nelbo",)
    llama = False

    def build(self, shape: DuoShape) -> nn.Module:
        """Make an untrained network."""
        return DuoModel(shape)

    def objective(self, network: DuoModel, options: DuoOptions) -> Objective:
        """Train by the continuous-time bound."""
        return DuoObjective(network, options)

    def estimators(self, network: DuoModel, effort: Effort) -> Sequence[Estimator]:
        """Score by the continuous-time bound; one call of a replicate is its read-out."""
        r, m = effort.replicates, effort.draws
        return [UniformBound(r, m - 1, batch_size=effort.batch_size)]

    def levels(self, network: DuoModel) -> Sequence[Level]:
        """Ask at times."""
        return [AtTime(t) for t in TIMES]


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
    asks: ClassVar[type] = Replaced
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


def duo(num_steps: int, *, greedy: bool = False, draw: Draw = Draw()) -> Sampler:
    """DUO's ancestral sampler of uniform noise; `greedy` is its tail, which draws no last step."""
    return Psi(num_steps, greedy=greedy, draw=draw)


def psi(
    num_steps: int,
    *,
    kappa: float = 0.95,
    t_on: float = 0.5,
    t_off: float = 0.1,
    greedy: bool = False,
    draw: Draw = Draw(),
) -> Sampler:
    """DUO's Ψ-sampler; kappa and where it acts are those of the official script for images."""
    return Psi(num_steps, kappa, t_on, t_off, greedy, draw)
