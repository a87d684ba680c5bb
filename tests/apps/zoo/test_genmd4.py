"""GenMD4: kernel, bound and gradient of learned paces by enumeration, and samples by χ²."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.genmd4 import GenMd4Objective, PacedBound, PacedKernel, PacedModel
from dsl.apps.zoo.kernel import Kernel
from dsl.apps.zoo.md4 import MaskedBound, Md4Shape
from dsl.core import oracle
from dsl.core.alpha import Linear, Polynomial
from dsl.core.streams import Streams, stream
from dsl.core.types import MASK
from dsl.families.mdlm import LEAST_TIME
from dsl.families.registry import FAMILIES
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import p_value
from tests.conftest import assert_near
from tests.exact_times import ExactTimed, Process, enumerated
from tests.families.conftest import TOKENS, awake, untrained

GENMD4, MD4 = FAMILIES["genmd4"], FAMILIES["md4"]
PACE = torch.tensor([0.4, 1.0, 2.5]).double()
TEXT = torch.tensor([[0, 2, 1]])
PLACES = range(64)


class ExactPaced(Process):
    """The clean token given the whole noisy text, including the position's own mask."""

    def __init__(self, truth: oracle.Enumerated, pace: Tensor) -> None:
        super().__init__(truth, "absorbing")
        self.kernel = PacedKernel("absorbing", len(pace), pace)

    def at_time(self, tokens: Tensor, t: Tensor) -> Tensor:
        return self.counted(self._clean, tokens, t)

    def _clean(self, tokens: Tensor, t: Tensor) -> Tensor:
        p = self.joint(tokens, t)[0].softmax(dim=-1)
        onto = torch.nn.functional.one_hot(self.truth.sequences, self.vocab_size)
        return torch.einsum("bk,klv->blv", p, onto.to(p)).clamp(min=1e-300).log()


class Smooth(PacedModel):
    """A wrong network that is smooth in time, so that quadrature can integrate it."""

    def __init__(self, pace: Tensor) -> None:
        super().__init__(Md4Shape(3, hidden_dim=4, n_heads=1, n_blocks=1, cond_dim=2))
        self.raw_pace = torch.nn.Parameter(pace.expm1().log().float())
        draw = torch.Generator().manual_seed(3)
        self.context = torch.randn(3, 4, 3, 3, generator=draw)  # (l, v + 1, l, v)

    def at_time(self, tokens: Tensor, t: Tensor) -> Tensor:
        ids = tokens.masked_fill(tokens == MASK, 3)
        seen = self.context[torch.arange(3), ids].sum(dim=1)
        return seen * (1 - t.to(seen).view(-1, 1, 1) / 2)


def exact_bound(network: PacedModel, chance_pace: Tensor, pace: Tensor) -> Tensor:
    """Integrate the training bound of TEXT over times and sum over all masks, by definition.

    Args:
        network: The network.
        chance_pace: w of the masks that are drawn.
        pace: w of the rates and of the reconstruction.
    """
    x, low = TEXT[0], np.log(LEAST_TIME)
    nodes, weights = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(40))
    sets = torch.tensor(list(itertools.product([False, True], repeat=3)))
    # every time with every mask; over log t, where dt/t is flat
    t = (low * (1 - nodes) / 2).exp().repeat_interleave(8)
    hidden = sets.repeat(40, 1)
    chance = t.unsqueeze(1) ** chance_pace[x]
    q = torch.where(hidden, chance, 1 - chance).prod(dim=1)
    logits = network.at_time(TEXT.expand(320, -1).masked_fill(hidden, MASK), t).double()
    log_mu = logits.log_softmax(dim=-1)
    own = -log_mu[:, torch.arange(3), x]
    rates = pace[x] * own + log_mu.exp() @ pace - pace[x]
    parts = weights.repeat_interleave(8) * -low / 2 * q * (rates * hidden).sum(dim=1)
    at_least = LEAST_TIME**pace
    lost = at_least[x] * -(at_least / at_least.sum()).log()[x]
    return parts.sum() + lost.sum()


def gradients(objective: GenMd4Objective, draws: int) -> tuple[Tensor, Tensor]:
    """Return losses and gradients of the raw paces, a batch of TEXT at a time."""
    losses, slopes = [], []
    for seed in range(draws):
        objective.zero_grad()
        loss = objective(TEXT.expand(64, -1), Streams.derive(seed, PLACES), PLACES, 64)
        (3 * loss.mean).backward()  # of the text, not of a position
        losses.append(3 * loss.mean.detach().double())
        slopes.append(objective.model.raw_pace.grad.double().clone())  # type: ignore[union-attr]
    return torch.stack(losses), torch.stack(slopes)


class TestKernel:
    def test_equal_paces_are_a_polynomial_schedule(self) -> None:
        paced = PacedKernel("absorbing", 3, torch.full((3,), 2.5))
        plain, power = Kernel("absorbing", 3), Polynomial(2.5)
        t, s = torch.tensor([0.3, 0.8]).double(), torch.tensor([0.1, 0.7]).double()
        tokens = torch.tensor([[0, MASK, 2], [MASK, MASK, 1]])
        clean = torch.rand(2, 3, 3).double().softmax(dim=-1)
        assert_near(paced.log_likelihood(tokens, 1 - t), plain.log_likelihood(tokens, power(t)))
        assert_near(
            paced.posterior(tokens, clean, 1 - t, 1 - s),
            plain.posterior(tokens, clean, power(t), power(s)),
        )

    def test_the_posterior_is_bayes_rule(self) -> None:
        """P(x_s = v | masked at t) is P(v) (α_v(s) - α_v(t)) over P(masked at t)."""
        t, s, prior = 0.6, 0.25, torch.tensor([0.5, 0.2, 0.3]).double()
        masked_t, masked_s = t**PACE, s**PACE
        clean = prior * masked_t / (prior * masked_t).sum()
        found = PacedKernel("absorbing", 3, PACE).posterior(
            torch.tensor([[MASK, 1]]), clean.expand(1, 2, 3), torch.tensor([1 - t]).double(),
            torch.tensor([1 - s]).double(),
        )[0]  # fmt: skip
        joint = torch.cat([prior * (masked_t - masked_s), (prior * masked_s).sum().view(1)])
        assert_near(found[0], joint / (prior * masked_t).sum())
        assert found[1].tolist() == [0, 1, 0, 0]

    def test_corruption_follows_the_paces(self) -> None:
        n, t = 40_000, 0.3
        tokens = torch.arange(3).repeat(n, 1)
        kernel = PacedKernel("absorbing", 3, PACE)
        drawn = kernel.corrupt(tokens, torch.full((n,), 1 - t), generator=stream(0))
        for share, p in zip((drawn == MASK).double().mean(dim=0), t**PACE, strict=True):
            assert abs(float(share - p)) < 4 * float((p * (1 - p) / n) ** 0.5)
        assert torch.equal(drawn[drawn != MASK], tokens[drawn != MASK])


class TestBound:
    @pytest.mark.parametrize("pace", [PACE, PACE.flip(0), torch.full((3,), 0.6).double()])
    def test_with_the_exact_posterior_it_is_the_truth_at_any_pace(self, pace: Tensor) -> None:
        truth = oracle.markov(3, 3, sharpness=0.8)
        tokens = truth.sample(6, generator=stream(1))
        exact = ExactPaced(enumerated(truth), pace)
        found = PacedBound(replicates=16, draws=64)(exact, tokens, generator=stream(2))
        assert (found.stderr < 0.1 * found.nats).all()
        assert ((found.nats + truth.log_prob(tokens)).abs() < 4 * found.stderr + 1e-9).all()

    def test_a_network_that_ignores_its_own_mask_is_noticed(self) -> None:
        """Such a network is not exact, so the test above can fail."""
        truth = oracle.markov(3, 3, sharpness=0.8)
        tokens = truth.sample(50, generator=stream(1))
        deaf = ExactTimed(enumerated(truth), "absorbing")
        deaf.kernel = PacedKernel("absorbing", 3, PACE)
        found = PacedBound(8, 32)(deaf, tokens, generator=stream(2))
        assert float((found.nats + truth.log_prob(tokens)).mean()) > 10 * found.mean_stderr

    def test_with_equal_paces_it_is_the_bound_of_md4(self) -> None:
        """The same number from the same draws, at the times of the polynomial schedule."""
        paced, plain = awake(GENMD4), awake(MD4, schedule="polynomial", power=2.0)
        with torch.no_grad():
            paced.raw_pace.copy_(torch.full((5,), 2.0).expm1().log())
        plain.load_state_dict(paced.state_dict(), strict=False)
        one = PacedBound()(paced, TOKENS[:3], generator=stream(0))
        two = MaskedBound()(plain, TOKENS[:3], generator=stream(0))
        torch.testing.assert_close(one.values, two.values, rtol=1e-3, atol=1e-4)

    def test_it_agrees_with_enumeration(self) -> None:
        """Up to the difference between the reconstruction and the network, below 1e-3."""
        network = Smooth(torch.tensor([0.8, 1.0, 1.6]))
        pace = network.pace.detach().double()
        wanted = float(exact_bound(network, pace, pace))
        found = PacedBound(64, 64)(network, TEXT, generator=stream(0))
        assert float(found.stderr) < 0.02 * wanted
        assert abs(float(found.nats) - wanted) < 4 * float(found.stderr) + 0.02


class TestObjective:
    def test_loss_and_gradient_equal_the_enumerated_bound(self) -> None:
        """By central differences; the gradient through the draws is a large part."""
        network = Smooth(PACE.clamp(min=0.6))
        losses, slopes = gradients(GenMd4Objective(network), 80)
        pace, h = network.pace.detach().double(), 1e-4
        inner = -torch.expm1(-pace)  # d softplus
        wanted = exact_bound(network, pace, pace)
        assert abs(float(losses.mean() - wanted)) < 4 * float(losses.std()) / 80**0.5

        def slope(bound: Callable[[Tensor], Tensor]) -> Tensor:
            steps = h * torch.eye(3, dtype=torch.float64)
            return torch.stack([(bound(pace + e) - bound(pace - e)) / (2 * h) for e in steps])

        whole = inner * slope(lambda w: exact_bound(network, w, w))
        without_draws = inner * slope(lambda w: exact_bound(network, pace, w))
        error = 4 * slopes.std(dim=0) / 80**0.5
        assert ((slopes.mean(dim=0) - whole).abs() < error).all()
        assert ((without_draws - whole).abs() > error).any()

    def test_it_equals_the_estimator(self) -> None:
        network, text = awake(GENMD4), TOKENS[:1].expand(64, -1)
        objective = GENMD4.objective(network, GENMD4.Options())
        with torch.no_grad():
            draws = torch.stack([
                objective(text, Streams.derive(seed, PLACES), PLACES, 64).mean
                for seed in range(40)
            ])  # fmt: skip
        bound = PacedBound(32, 64)(network, TOKENS[:1], generator=stream(0))
        error = 4 * (float(draws.std()) ** 2 / 40 + (bound.mean_stderr / 6) ** 2) ** 0.5
        wanted = float(bound.nats) / 6
        assert abs(float(draws.mean()) - wanted) < error + 0.01 * wanted

    def test_masking_below_the_least_time_is_not_free(self) -> None:
        """At w = 0.1 half the tokens are masked at 1e-3; a uniform prediction still costs log v."""
        network = untrained(GENMD4)
        with torch.no_grad():
            network.raw_pace.copy_(torch.full((5,), 0.1).expm1().log())
            objective = GENMD4.objective(network, GENMD4.Options())
            draws = torch.stack([
                objective(TOKENS, Streams.derive(seed, PLACES), PLACES, 64).mean
                for seed in range(20)
            ])  # fmt: skip
        assert abs(float(draws.mean()) - math.log(5)) < 4 * float(draws.std()) / 20**0.5

    def test_it_starts_as_md4(self) -> None:
        """All paces are 1, and the masks are those of the linear schedule."""
        network = untrained(GENMD4)
        assert_near(network.pace, torch.ones(5))
        assert network.alpha == Linear()
        weights = [sum(p.numel() for p in untrained(f).parameters()) for f in (GENMD4, MD4)]
        assert weights[0] == weights[1] + 5


class Misled(ExactPaced):
    """The exact network of these paces with a kernel of equal paces."""

    def at_time(self, tokens: Tensor, t: Tensor) -> Tensor:
        return ExactPaced(self.truth, PACE).at_time(tokens, t)


def drawn(network: Process) -> Tensor:
    return last(sampler("timed@60"), network, State.blank(4000, 3), generator=stream(1)).tokens


def test_many_steps_of_the_exact_network_draw_from_the_truth() -> None:
    """A step treats positions as independent, so the error falls as 1/T."""
    truth = enumerated(oracle.markov(3, 3, sharpness=0.8))
    assert p_value(truth, drawn(ExactPaced(truth, PACE))) > 1e-4


def test_a_sampler_with_wrong_paces_is_noticed() -> None:
    truth = enumerated(oracle.markov(3, 3, sharpness=0.8))
    assert p_value(truth, drawn(Misled(truth, torch.ones(3).double()))) < 1e-9
