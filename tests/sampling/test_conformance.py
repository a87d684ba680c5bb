"""What every sampler must do, whatever its path."""

from __future__ import annotations

from itertools import islice

import pytest
import torch
from torch import Tensor

from dsl import oracle
from dsl.denoiser import Denoiser, Endpoints
from dsl.evidence import Confident, NBest, Unknown, evidence, given, likelihood
from dsl.models.config import ModelConfig
from dsl.presets import sampler
from dsl.sampling.sampler import last
from dsl.sampling.state import State
from dsl.streams import Streams
from dsl.types import MASK
from tests.conftest import perturbed

NAMES = [
    "mdlm@6",
    "mdlm@6:refresh_unmasked=true",
    "fb@6",
    "dfm@6",
    "remdm-cap@6:eta=0.3",
    "remdm-rescale@6:eta=0.5",
    "remdm-conf@6",
    "remdm-loop@20:eta=0.1",
    "first-hitting@6",
    "first-hitting",
    "roar",
    "roar:shared=true",
    "causal",
    "localize@9",
    "edm@6",
    "edm@6:heun=false,start=mean,churn=1.41,churn_means=factor",
    "hybrid@5+4",
    "remdm-cap@6:top_p=0.7,temperature=0.8,top_k=4",
]
B, L = 4, 8


class Counted:
    """A denoiser that counts how many sequences it was asked about, and in how many calls."""

    def __init__(self, denoiser: Denoiser) -> None:
        self.denoiser = denoiser
        self.sequences = torch.zeros(B, dtype=torch.long)
        self.calls = 0

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


@pytest.fixture(params=["oracle", "network"])
def denoiser(request: pytest.FixtureRequest) -> Denoiser:
    if request.param == "oracle":
        return oracle.markov(6, L)
    return perturbed(
        ModelConfig(6, codebook_dim=5, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2)
    )


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def prompted() -> State:
    tokens = torch.full((B, L), MASK)
    tokens[0, :3] = torch.tensor([1, 2, 3])  # a prefix
    tokens[1, 5:] = torch.tensor([0, 4, 5])  # a suffix
    tokens[2] = torch.arange(L) % 6  # nothing left to do
    return State.start(tokens)


def test_it_is_deterministic_and_depends_on_the_seed(denoiser: Denoiser, name: str) -> None:
    ends = [
        last(sampler(name), denoiser, State.blank(B, L), generator=Streams.derive(seed, range(B)))
        for seed in (0, 0, 1)
    ]
    assert torch.equal(ends[0].tokens, ends[1].tokens)
    if isinstance(denoiser, oracle.Markov):  # the small network is too sure of itself to vary
        assert not torch.equal(ends[0].tokens, ends[2].tokens)


def test_it_ends_with_tokens_everywhere_and_fixed_ones_untouched(
    denoiser: Denoiser, name: str
) -> None:
    start = prompted()
    for state in sampler(name).steps(denoiser, start, generator=Streams.derive(0, range(B))):
        assert torch.equal(state.tokens[start.fixed], start.tokens[start.fixed])
        assert torch.equal(state.fixed, start.fixed)
        assert state.z is None or not state.z.requires_grad, "a walk drags no graph behind it"
    assert not state.masked.any()
    assert state.z is None
    assert (state.tokens < 6).all()


def test_it_counts_its_denoiser_calls(denoiser: Denoiser, name: str) -> None:
    counted = Counted(denoiser)
    end = last(sampler(name), counted, prompted(), generator=Streams.derive(0, range(B)))
    assert torch.equal(end.nfe, counted.sequences)


@pytest.mark.parametrize("name", [name for name in NAMES if "shared" not in name])
def test_a_sequence_is_the_same_in_any_batch(name: str) -> None:
    denoiser = oracle.markov(6, L)
    whole = last(sampler(name), denoiser, State.blank(B, L), generator=Streams.derive(5, range(B)))
    for i in range(B):
        alone = last(sampler(name), denoiser, State.blank(1, L), generator=Streams.derive(5, [i]))
        assert torch.equal(alone.tokens, whole.tokens[i : i + 1])
        assert torch.equal(alone.nfe, whole.nfe[i : i + 1])


@pytest.mark.parametrize("stop_after", [1, 4])
def test_it_goes_on_from_any_state_it_yielded(
    denoiser: Denoiser, name: str, stop_after: int
) -> None:
    path = sampler(name)
    whole = list(path.steps(denoiser, prompted(), generator=Streams.derive(2, range(B))))
    streams = Streams.derive(2, range(B))
    head = list(islice(path.steps(denoiser, prompted(), generator=streams), stop_after))
    rest = list(path.steps(denoiser, head[-1], generator=streams))
    assert len(head) + len(rest) == len(whole)
    for resumed, straight in zip([*head, *rest], whole, strict=True):
        assert torch.equal(resumed.tokens, straight.tokens)
        assert torch.equal(resumed.nfe, straight.nfe)


def test_a_finished_state_has_no_more_steps(denoiser: Denoiser, name: str) -> None:
    end = last(sampler(name), denoiser, prompted(), generator=Streams.derive(0, range(B)))
    assert not list(sampler(name).steps(denoiser, end, generator=Streams.derive(0, range(B))))


def test_it_takes_evidence(denoiser: Denoiser, name: str) -> None:
    """Soft hints are only a denoiser: no sampler knows of them."""
    codebook = denoiser.codebook
    rows = [[Unknown(), Confident(2, 0.9), NBest({0: 0.5, 1: 0.5}), *[Unknown()] * (L - 3)]] * B
    hints = evidence(likelihood(rows, codebook), codebook)
    end = last(
        sampler(name),
        given(denoiser, hints),
        State.blank(B, L),
        generator=Streams.derive(0, range(B)),
    )
    assert (end.tokens[:, 2] <= 1).all()
    assert not end.masked.any()


def test_logits_that_are_nan_are_refused(name: str) -> None:
    broken = oracle.markov(6, L)
    broken.log_initial.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"NaN logits|state z must be finite"):
        last(sampler(name), broken, State.blank(B, L), generator=Streams.derive(0, range(B)))
