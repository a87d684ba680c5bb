"""The continuous view: half the squared error, integrated along any contour (equation 6, A.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dsl.core.channel import observe
from dsl.core.denoiser import Continuous, posterior_mean, require_logits
from dsl.core.path import RandomOrder, Shared, SNRPath, sequential
from dsl.core.streams import Randomness, uniform
from dsl.core.types import Codebook, Tokens
from dsl.likelihoods.estimate import Estimate, Kind, require_draws
from dsl.likelihoods.roar import cross_entropy

Contour = Literal["shared", "sequential", "random-order"]
CONTOURS: tuple[Contour, ...] = get_args(Contour)


@dataclass(frozen=True, eq=False)
class PathIntegral:
    """-log P = ½ ∫_0^Γ Σ_i E‖x_i - x̂_i‖² dγ_i - Σ_i E log P(x_i | z_Γ), along a contour.

    With an exact denoiser the two terms are -log P up to the dependence among tokens that z_Γ
    leaves, which vanishes as Γ grows. The prior term is 0, because z_0 = 0 carries no information.
    """

    contour: Contour | SNRPath = "shared"
    cutoff: float = 20.0
    """Γ. Choose it once, on validation data (`choose_cutoff`): the best Γ of each example would be
    biased downwards."""
    replicates: int = 8
    draws: int = 8
    """Points t in a replicate, one in each of equal strata."""
    power: float = 2.0
    """γ = Γ u^power along the contour, which samples γ with density ∝ γ^(1/power - 1): more often
    where the error is large. The weights make up for it; the estimate stays unbiased."""
    batch_size: int = 256
    """Sequences in one call of the denoiser."""
    kind: ClassVar[Kind] = "estimate"

    def __post_init__(self) -> None:
        require_draws(self.replicates, self.draws)
        if not self.cutoff > 0:
            raise ValueError(f"the cut-off must be positive, got {self.cutoff}")

    @property
    def label(self) -> str:
        """The contour's name; a custom path is called tabulated."""
        return self.contour if isinstance(self.contour, str) else "tabulated"

    def __call__(
        self, denoiser: Continuous, tokens: Tokens, *, generator: Randomness = None
    ) -> Estimate:
        """Estimate -log P of every sequence."""
        integral, reconstruction = self.terms(denoiser, tokens, generator=generator)
        return Estimate(integral.values + reconstruction.values)

    def terms(
        self, denoiser: Continuous, tokens: Tokens, *, generator: Randomness = None
    ) -> tuple[Estimate, Estimate]:
        """Estimate the integral up to Γ and the reconstruction at Γ."""
        b, length = tokens.shape
        r, m = self.replicates, self.draws
        u = uniform((b, r, m), generator=generator, dtype=torch.float64, device=tokens.device)
        t = (torch.arange(m, device=tokens.device) + u) / m
        path = self._path(b, length, generator, tokens.device)
        snr, d_snr = path(t.flatten())
        ends = path(torch.ones(b * r * m, dtype=t.dtype, device=t.device))[0]
        end = ends.reshape(b, r, m, length)[:, :, 0]
        error = self._errors(denoiser, tokens, snr, d_snr, generator)
        integral = (0.5 * d_snr * error).reshape(b, r, m, length).mean(dim=2)
        reconstruction = self._reconstruction(denoiser, tokens, end, generator)
        return Estimate(integral), Estimate(reconstruction)

    def _path(self, b: int, length: int, generator: Randomness, device: torch.device) -> SNRPath:
        if self.contour == "shared":
            return Shared(length, self.cutoff, self.power)
        if self.contour == "sequential":
            order = sequential(length).order.to(device)
            return RandomOrder(order, self.cutoff, self.power)
        if self.contour == "random-order":
            r, m = self.replicates, self.draws
            # one order for each replicate, kept by all of its points
            keys = uniform((b, r, length), generator=generator, dtype=torch.float64, device=device)
            orders = keys.argsort(dim=-1).unsqueeze(2).expand(b, r, m, length)
            return RandomOrder(orders.reshape(-1, length), self.cutoff, self.power)
        return self.contour

    @torch.no_grad()
    def _errors(
        self,
        denoiser: Continuous,
        tokens: Tokens,
        snr: Float[Tensor, "n l"],
        d_snr: Float[Tensor, "n l"],
        generator: Randomness,
    ) -> Float[Tensor, "n l"]:
        """Return ‖x_i - x̂_i(z)‖² where the contour moves, one draw of z for each point."""
        z, clean = observations(denoiser.codebook, tokens, snr, generator)
        codebook = denoiser.codebook.double()
        errors = torch.zeros_like(snr)
        for part in torch.arange(len(z), device=z.device).split(self.batch_size):
            at = d_snr[part] > 0
            logits = denoiser(z[part], at=at)
            require_logits(logits)
            x_hat = posterior_mean(logits.double(), codebook)
            squared = (codebook[clean[part][at]] - x_hat).square().sum(dim=-1)
            errors[part] = errors[part].masked_scatter(at, squared.to(errors.dtype))
        return errors

    @torch.no_grad()
    def _reconstruction(
        self,
        denoiser: Continuous,
        tokens: Tokens,
        end: Float[Tensor, "b r l"],
        generator: Randomness,
    ) -> Float[Tensor, "b r l"]:
        b, r, length = end.shape
        z, clean = observations(denoiser.codebook, tokens, end.reshape(b * r, length), generator)
        losses = []
        for state, rows in zip(z.split(self.batch_size), clean.split(self.batch_size), strict=True):
            losses.append(cross_entropy(denoiser(state).flatten(0, 1), rows.flatten()))
        return torch.cat(losses).reshape(b, r, length)


def observations(
    codebook: Codebook, tokens: Tokens, snr: Float[Tensor, "n l"], generator: Randomness
) -> tuple[Float[Tensor, "n l d"], Int[Tensor, "n l"]]:
    """Observe every sequence at many SNRs, its noise drawn from its own stream."""
    b, length = tokens.shape
    codebook = codebook.detach()
    many = len(snr) // b
    clean = tokens.unsqueeze(1).expand(b, many, length)
    x = codebook[clean].reshape(b, many * length, -1)
    z = observe(x, snr.reshape(b, many * length).to(x.dtype), generator=generator)
    return z.reshape(b * many, length, -1), clean.reshape(b * many, length)


def choose_cutoff(
    denoiser: Continuous,
    tokens: Tokens,
    *,
    candidates: tuple[float, ...] = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0),
    estimator: PathIntegral | None = None,
    generator: Randomness = None,
) -> float:
    """Choose Γ on validation data: the smallest whose reconstruction is below one standard error.

    The error is the Monte-Carlo error of the mean over these sequences. If no candidate is large
    enough, the largest is taken.
    """
    estimator = estimator or PathIntegral()
    for cutoff in candidates:
        integral, rest = replace(estimator, cutoff=cutoff).terms(
            denoiser, tokens, generator=generator
        )
        whole = Estimate(integral.values + rest.values)
        if float(rest.nats.mean()) < whole.mean_stderr:
            return cutoff
    return candidates[-1]
