"""What every sampler must do, whatever its path."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import islice

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo import timed
from dsl.apps.zoo.candi import CandiModel, CandiShape, Mixed
from dsl.apps.zoo.kernel import Kernel
from dsl.apps.zoo.prism import PrismModel
from dsl.apps.zoo.sedd import Floored, Scored, SeddModel
from dsl.apps.zoo.timed import Timed, TimedModel, TimedShape
from dsl.conditioning.evidence import Confident, Evidence, Known, NBest, Unknown, given
from dsl.core import oracle
from dsl.core.alpha import Linear, Schedule
from dsl.core.denoiser import Clocked, Continuous, Endpoints, Network, Rated
from dsl.core.streams import Streams
from dsl.core.types import MASK
from dsl.families.mdlm import MdlmShape
from dsl.families.vp import VpModel, VpShape
from dsl.models.config import ModelConfig
from dsl.samplers.base import last
from dsl.samplers.registry import SAMPLERS, sampler
from dsl.samplers.state import State
from tests.conftest import perturbed
from tests.doubles import Double
from tests.exact_quality import RatedOracle

BUDGETS = ("", "@6", "@5+4")


def forms(preset: str) -> list[str]:
    """Every way in which a preset can be asked for; there must be one."""
    found, reasons = [], []
    for budget in BUDGETS:
        try:
            sampler(preset + budget)
        except ValueError as error:
            reasons.append(str(error))
        else:
            found.append(preset + budget)
    assert found, f"preset {preset!r} escapes the conformance suite: {'; '.join(reasons)}"
    return found


NAMES = [
    *(name for preset in SAMPLERS for name in forms(preset)),
    "mdlm@6:refresh_unmasked=true",
    "mdlm@6:schedule=cosine",
    "mdlm@6:schedule=polynomial,power=1.5",
    "fb@6:official=true",
    "dfm@6:official=true",
    "remdm-cap@6:eta=0.3",
    "remdm-rescale@6:eta=0.5",
    "remdm-loop@20:eta=0.1",
    "roar:shared=true",
    "edm@6:heun=false,start=mean,churn=1.41,churn_means=factor",
    "remdm-cap@6:top_p=0.7,temperature=0.8,top_k=4",
    "prism@6:eta=0.5,on=0",
    "prism-loop@6:share=0.3",
    "duo@6:greedy=true",
    "psi@6:kappa=0.5,t_on=1,t_off=0,greedy=true",
]
B, L = 4, 8
CONFIG = ModelConfig(6, codebook_dim=5, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2)
SHAPE = VpShape(6, codebook_dim=5, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2)
TIMED = TimedShape(6, noise="uniform", hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2)
RATED = MdlmShape(6, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2)

MIXED = CandiShape(6, codebook_dim=5, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2)


class Steered(Double):
    """A denoiser that is told the SNR and does not need it."""

    snr_range = (1e-3, 60.0)

    def __init__(self, denoiser: Continuous) -> None:
        self.denoiser = denoiser

    @property
    def codebook(self) -> Tensor:
        return self.denoiser.codebook

    def at_snr(self, z: Tensor, snr: Tensor) -> Tensor:
        return self.denoiser(z.to(self.codebook))


class Absorbed(Steered):
    """A denoiser that is told the time at which tokens were masked and does not need it."""

    kernel, alpha = Kernel("absorbing", 6), Linear()

    def at_time(self, tokens: Tensor, t: Tensor) -> Tensor:
        return self.denoiser(Endpoints(tokens))


class Ratios(Steered):
    """Score ratios made of a denoiser of masks."""

    kernel, alpha = Kernel("absorbing", 6), Floored(Linear())

    def log_score(self, tokens: Tensor, t: Tensor) -> Tensor:
        alpha = self.alpha(t.double()).view(-1, 1, 1)
        return self.denoiser(Endpoints(tokens)).log_softmax(-1) + (alpha / (1 - alpha)).log()


class Replaced(Steered):
    """A denoiser that is told when tokens were replaced, and trusts every second of them."""

    kernel, alpha = Kernel("uniform", 6), Linear()

    def at_time(self, tokens: Tensor, t: Tensor) -> Tensor:
        return self.denoiser(Endpoints(tokens.masked_fill(torch.arange(L) % 2 == 0, MASK)))


def asks(name: str, *protocols: type) -> bool:
    return any(protocol in sampler(name).asks.__mro__ for protocol in protocols)


def exact(name: str) -> Network:
    """The oracle in the form that the sampler can ask."""
    return posed(name, oracle.markov(6, L))


def posed(name: str, chain: oracle.Markov) -> Network:
    if asks(name, Clocked):
        return Steered(chain)
    if asks(name, Rated):
        return RatedOracle(chain)
    if asks(name, Scored):
        return Ratios(chain)
    if asks(name, Mixed):
        return Veiled(chain)
    if asks(name, timed.Replaced):
        return Replaced(chain)
    return Absorbed(chain) if asks(name, Timed) else chain


def network(name: str) -> torch.nn.Module:
    """A small network of the kind that the sampler serves."""
    kinds = {
        Clocked: lambda: VpModel(SHAPE),
        Timed: lambda: TimedModel(TIMED),
        Scored: lambda: SeddModel(TIMED),
        Rated: lambda: PrismModel(RATED),
        Mixed: lambda: CandiModel(MIXED),
    }
    made = [build for protocol, build in kinds.items() if asks(name, protocol)]
    if not made:
        return perturbed(CONFIG)
    model = made[0]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


class Veiled(Steered):
    """A denoiser that is told the time of noisy and clean tokens and does not need it."""

    def snr_at(self, t: Tensor) -> Tensor:
        return 8 * (1 - t)

    def snr_slope(self, t: Tensor) -> Tensor:
        return torch.full_like(t, -8)

    def at_mixture(self, z: Endpoints, t: Tensor) -> Tensor:
        return self.denoiser(z)


class Counted(Double):
    """A denoiser that counts how many sequences it was asked about, and in how many calls."""

    def __init__(self, denoiser: Network) -> None:
        self.denoiser = denoiser
        self.sequences = torch.zeros(B, dtype=torch.long)
        self.calls = self.asked = 0

    @property
    def codebook(self) -> Tensor:
        return self.denoiser.codebook

    @property
    def snr_max(self) -> float:
        return self.denoiser.snr_max

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        self.calls += 1
        self.sequences += 1 if at is None else at.any(dim=1).long()
        return self.denoiser(z, at=at)


class CountedTime(Counted):
    """The same for a network that is told the time."""

    device = torch.device("cpu")

    @property
    def vocab_size(self) -> int:
        return self.denoiser.vocab_size

    @property
    def kernel(self) -> Kernel:
        return self.denoiser.kernel

    @property
    def alpha(self) -> Schedule:
        return self.denoiser.alpha

    def at_time(self, tokens: Tensor, t: Tensor) -> Tensor:
        self.calls += 1
        self.asked += len(tokens)
        return self.denoiser.at_time(tokens, t)

    def log_score(self, tokens: Tensor, t: Tensor) -> Tensor:
        self.calls += 1
        self.asked += len(tokens)
        return self.denoiser.log_score(tokens, t)


class CountedQuality(Counted):
    """The same for a network that rates tokens by a forward of its own."""

    device = torch.device("cpu")

    @property
    def vocab_size(self) -> int:
        return self.denoiser.vocab_size

    def quality(self, z: Endpoints) -> Tensor:
        self.calls += 1
        self.asked += len(z.tokens)
        return self.denoiser.quality(z)


class CountedMixture(CountedTime):
    """The same for a network of clean and noisy tokens."""

    def snr_at(self, t: Tensor) -> Tensor:
        return self.denoiser.snr_at(t)

    def snr_slope(self, t: Tensor) -> Tensor:
        return self.denoiser.snr_slope(t)

    def at_mixture(self, z: Endpoints, t: Tensor) -> Tensor:
        self.calls += 1
        self.asked += len(t)
        return self.denoiser.at_mixture(z, t)


class CountedClock(Counted):
    """The same for a network with a clock, which computes the whole batch in any case."""

    @property
    def snr_range(self) -> tuple[float, float]:
        assert isinstance(self.denoiser, Clocked)
        return self.denoiser.snr_range

    def at_snr(self, z: Tensor, snr: Tensor) -> Tensor:
        assert isinstance(self.denoiser, Clocked)
        self.calls += 1
        self.sequences += prompted().free.any(dim=1).long()
        return self.denoiser.at_snr(z, snr)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[exact, network])
def kind(request: pytest.FixtureRequest) -> Callable[[str], Network]:
    found: Callable[[str], Network] = request.param
    return found


@pytest.fixture
def denoiser(kind: Callable[[str], Network], name: str) -> Network:
    return posed_once(kind, name)


@cache
def posed_once(kind: Callable[[str], Network], name: str) -> Network:
    return kind(name)


@cache
def walk(kind: Callable[[str], Network], name: str) -> list[State]:
    """All states from a prompt to the end."""
    streams = Streams.derive(0, range(B))
    return list(sampler(name).steps(posed_once(kind, name), prompted(), generator=streams))


def prompted() -> State:
    tokens = torch.full((B, L), MASK)
    tokens[0, :3] = torch.tensor([1, 2, 3])  # a prefix
    tokens[1, 5:] = torch.tensor([0, 4, 5])  # a suffix
    tokens[2] = torch.arange(L) % 6  # nothing left to do
    return State.start(tokens)


def test_it_ends_with_tokens_everywhere_and_fixed_ones_untouched(
    denoiser: Network, name: str
) -> None:
    start = prompted()
    for state in sampler(name).steps(denoiser, start, generator=Streams.derive(0, range(B))):
        assert torch.equal(state.tokens[start.fixed], start.tokens[start.fixed])
        assert torch.equal(state.fixed, start.fixed)
        assert state.z is None or not state.z.requires_grad, "a walk drags no graph behind it"
    assert not state.masked.any()
    assert state.z is None
    assert (state.tokens < 6).all()


def test_it_is_deterministic_and_depends_on_the_seed(
    kind: Callable[[str], Network], denoiser: Network, name: str
) -> None:
    again, other = (
        last(sampler(name), denoiser, prompted(), generator=Streams.derive(seed, range(B)))
        for seed in (0, 1)
    )
    end = walk(kind, name)[-1]
    assert torch.equal(again.tokens, end.tokens)
    if kind is exact:  # the small network is too sure to vary
        assert not torch.equal(other.tokens, end.tokens)


def test_it_counts_its_denoiser_calls(denoiser: Network, name: str) -> None:
    counted = CountedClock(denoiser) if asks(name, Clocked) else Counted(denoiser)
    told = asks(name, Timed, Scored, Mixed)
    counted = CountedTime(denoiser) if told else counted
    counted = CountedMixture(denoiser) if asks(name, Mixed) else counted
    counted = CountedQuality(denoiser) if asks(name, Rated) else counted
    end = last(sampler(name), counted, prompted(), generator=Streams.derive(0, range(B)))
    if told:  # only sequences with something left to do are passed on
        assert int(end.nfe.sum()) == counted.asked > 0 and end.nfe[2] == 0
        return
    if asks(name, Rated):
        assert int(end.nfe.sum()) == int(counted.sequences.sum()) + counted.asked
        assert end.nfe[2] == 0
        return
    assert torch.equal(end.nfe, counted.sequences)


@pytest.mark.parametrize("name", [name for name in NAMES if "shared" not in name])
def test_a_sequence_is_the_same_in_any_batch(name: str) -> None:
    denoiser = exact(name)
    whole = last(sampler(name), denoiser, State.blank(B, L), generator=Streams.derive(5, range(B)))
    for i in (0, B - 1):
        alone = last(sampler(name), denoiser, State.blank(1, L), generator=Streams.derive(5, [i]))
        assert torch.equal(alone.tokens, whole.tokens[i : i + 1])
        assert torch.equal(alone.nfe, whole.nfe[i : i + 1])


@pytest.mark.parametrize("stop_after", [1, 4])
def test_it_goes_on_from_any_state_it_yielded(
    kind: Callable[[str], Network], denoiser: Network, name: str, stop_after: int
) -> None:
    path, whole = sampler(name), walk(kind, name)
    streams = Streams.derive(0, range(B))
    head = list(islice(path.steps(denoiser, prompted(), generator=streams), stop_after))
    rest = list(path.steps(denoiser, head[-1], generator=streams))
    assert len(head) + len(rest) == len(whole)
    for resumed, straight in zip([*head, *rest], whole, strict=True):
        assert torch.equal(resumed.tokens, straight.tokens)
        assert torch.equal(resumed.nfe, straight.nfe)
    assert not list(path.steps(denoiser, whole[-1], generator=streams)), "the end is the end"


def test_it_takes_evidence(denoiser: Network, name: str) -> None:
    """Soft hints are only a denoiser: no sampler knows of them; clocks and ratings have none."""
    row = [Unknown(), Confident(2, 0.9), NBest({0: 0.5, 1: 0.5}), Known(4), *[Unknown()] * (L - 4)]
    if asks(name, Clocked, Timed, Scored, Mixed):
        with pytest.raises(ValueError, match="takes no confidences"):
            Evidence.of([row] * B, denoiser)
        pins = Evidence.of([[Known(1), *[Unknown()] * (L - 1)]] * B, denoiser)
        with pytest.raises(ValueError, match="only a denoiser can be conditioned"):
            given(denoiser, pins)
        return
    if asks(name, Rated):
        with pytest.raises(ValueError, match="takes no confidences"):
            Evidence.of([row] * B, denoiser)
        pins = Evidence.of([[Known(1), *[Unknown()] * (L - 1)]] * B, denoiser)
        with pytest.raises(ValueError, match="a network that rates its tokens"):
            last(sampler(name), given(denoiser, pins), State.blank(B, L))
        return
    hints = Evidence.of([row] * B, denoiser)
    end = last(
        sampler(name),
        given(denoiser, hints),
        State.blank(B, L),
        generator=Streams.derive(0, range(B)),
    )
    assert (end.tokens[:, 2] <= 1).all() and (end.tokens[:, 3] == 4).all()
    assert not end.masked.any()


def test_logits_that_are_nan_are_refused(name: str) -> None:
    chain = oracle.markov(6, L)
    chain.log_initial.fill_(torch.nan)
    broken = posed(name, chain)
    with pytest.raises(ValueError, match=r"NaN logits|state z must be finite"):
        last(sampler(name), broken, State.blank(B, L), generator=Streams.derive(0, range(B)))
