"""Guidance, and steering by a property of the whole text: against enumeration."""

from __future__ import annotations

import pytest
import torch

import dsl
from dsl.cli.main import main
from dsl.conditioning.evidence import Confident, Evidence, Known, Unknown, given
from dsl.conditioning.guidance import guided
from dsl.conditioning.steering import Steered
from dsl.core import oracle
from dsl.core.denoiser import Endpoints
from dsl.core.oracle import Enumerated
from dsl.core.streams import stream
from dsl.samplers.base import last
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.apps.zoo.test_timed import DRAWS, p_value
from tests.conftest import assert_near
from tests.exact_times import enumerated

CHAIN = oracle.markov(3, 4, sharpness=0.8)
ROW = [Known(1), Unknown(), Confident(2, 0.7), Known(0)]


def blank(length: int = 4) -> Endpoints:
    return State.blank(1, length).endpoints


def test_counted_once_it_is_plain_conditioning() -> None:
    evidence = Evidence.of([ROW], CHAIN)
    once = guided(CHAIN, evidence, 1.0 + 1e-9)
    assert_near(once(blank()).softmax(-1), given(CHAIN, evidence)(blank()).softmax(-1))
    assert not hasattr(guided(CHAIN, evidence, 1.0), "blind")


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0, 5.0])
def test_the_posterior_of_having_seen_it_so_often(weight: float) -> None:
    """p(v) p(y | v)^w, by enumeration, for what is known for certain and for what is not."""
    truth = enumerated(CHAIN)
    p = truth.log_weights.softmax(0)
    likelihood = torch.where(truth.sequences[:, 2] == 2, 0.7, 0.15)  # of the hint about the third
    seen = (truth.sequences[:, 0] == 1) & (truth.sequences[:, 3] == 0)
    prior = torch.stack([p[truth.sequences[:, 1] == v].sum() for v in range(3)])
    joint = p * seen * likelihood
    told = torch.stack([joint[truth.sequences[:, 1] == v].sum() for v in range(3)]) / prior
    wanted = prior * told**weight
    found = guided(CHAIN, Evidence.of([ROW], CHAIN), weight)(blank())[0, 1].softmax(-1)
    assert_near(found, wanted / wanted.sum())


def test_states_are_guided_too() -> None:
    """Along a continuous path what is given is hidden as γ = 0, and pinned rows stay sure."""
    evidence = Evidence.of([ROW], CHAIN)
    twice = guided(CHAIN, evidence, 2.0)
    z = torch.randn(1, 4, CHAIN.codebook.shape[1], generator=stream(0), dtype=torch.float64)
    told = given(CHAIN, evidence)(z).log_softmax(-1)
    free = CHAIN(z * torch.tensor([0.0, 1, 1, 0]).view(1, 4, 1).double()).log_softmax(-1)
    assert_near(twice(z)[0, 1:3].softmax(-1), (2 * told - free)[0, 1:3].softmax(-1))
    assert twice(z)[0, 0].softmax(-1).tolist() == [0, 1, 0]
    end = last(sampler("localize@20"), twice, State.start(evidence.pinned), generator=stream(1))
    assert (end.tokens[0, [0, 3]] == torch.tensor([1, 0])).all()


def test_both_calls_are_counted() -> None:
    evidence = Evidence.of([ROW], CHAIN)
    start = State.start(evidence.pinned)
    plain = last(sampler("roar"), given(CHAIN, evidence), start, generator=stream(0))
    twice = last(sampler("roar"), guided(CHAIN, evidence, 2.0), start, generator=stream(0))
    assert (twice.nfe == 2 * plain.nfe).all()


class Wanted:
    """ℓ_i(v) = log E[e^r | v at i, what is known], by enumeration."""

    def __init__(self, truth: Enumerated, reward: torch.Tensor) -> None:
        self.truth, self.weights = truth, truth.log_weights.softmax(0)
        self.told = self.weights * reward.exp()

    def __call__(self, p: torch.Tensor) -> torch.Tensor:
        length, v = p.shape[1:]
        onto = torch.nn.functional.one_hot(self.truth.sequences, v).double()  # (k, l, v)
        known = (p.amax(-1) == 1).unsqueeze(1)  # (b, 1, l)
        own = torch.einsum("blv,klv->bkl", (p == 1).double(), onto)
        fits = (own == 1) | ~known
        others = torch.stack([fits[..., [j for j in range(length) if j != i]].all(-1)
                              for i in range(length)], dim=-1).double()  # fmt: skip
        both = [torch.einsum("k,bkl,klv->blv", w, others, onto) for w in (self.told, self.weights)]
        return (both[0] / both[1].clamp(min=1e-300)).log()


@pytest.mark.parametrize("name", ["roar", "causal", "confident@3"])
def test_a_reward_tilts_the_distribution(name: str) -> None:
    """With the exact likelihood, texts are drawn as often as P(x) e^{r(x)} says."""
    truth = enumerated(oracle.markov(3, 3, sharpness=0.8))
    reward = torch.randn(len(truth.sequences), generator=stream(5), dtype=torch.float64)
    tilted = Enumerated(truth.sequences, truth.log_weights + reward, truth.codebook)
    told = Steered(truth, Wanted(truth, reward))
    end = last(sampler(name), told, State.blank(DRAWS, 3), generator=stream(1))
    assert p_value(tilted, end.tokens) > 1e-4
    assert p_value(truth, end.tokens) < 1e-9


def test_what_rules_everything_out_is_said() -> None:
    told = Steered(CHAIN, lambda p: torch.full_like(p, -torch.inf))
    with pytest.raises(ValueError, match="rules out every token"):
        told(blank())
    with pytest.raises(ValueError, match="a masked path"):
        told(torch.zeros(1, 4, 2))


class TestUse:
    @pytest.mark.parametrize("weight", [1.0, 3.0])
    def test_a_doubtful_letter_counts_so_often(self, weight: float) -> None:
        """Half sure of the first of six letters: odds of 5 for it, and of 5^w if it is guided."""
        chain = oracle.markov(6, 3)
        prior = float(chain(blank(3))[0, 0].softmax(-1)[1])
        odds = prior / (1 - prior) * 5**weight
        hints = [Confident(1, 0.5), Unknown(), Unknown()]
        samples = dsl.generate("oracle:markov-6", 400, hints=hints,
                               guidance=weight, sampler="causal", batch_size=400)  # fmt: skip
        assert {sample.nfe for sample in samples} == ({3} if weight == 1 else {6})
        found = sum(sample.tokens[0] == 1 for sample in samples) / 400
        p = odds / (1 + odds)
        assert abs(found - p) < 5 * (p * (1 - p) / 400) ** 0.5

    def test_infilling_is_guided(self) -> None:
        assert dsl.infill("AB[3]FG", "oracle:cyclic-7", guidance=2.0)[0].text == "ABCDEFG"

    @pytest.mark.parametrize(("words", "message"), [
        (["--guidance", "2"], "guidance needs a prompt or hints, got neither"),
        (["--guidance", "-1", "--prompt", "a"], "guidance must be finite and at least 0"),
        (["--guidance", "nan", "--prompt", "a"], "guidance"),
        (["--guidance", "2", "--prompt", "a", "--model", "text8-tiny-ar", "--sampler", "causal"],
         "only a model that predicts masked tokens in any order"),
    ])  # fmt: skip
    def test_bad_input_is_one_line(
        self, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        model = [] if "--model" in words else ["--model", "text8-tiny"]
        assert main(["sample", *model, *words]) in (1, 2)
        error = capsys.readouterr().err.strip()
        assert "Traceback" not in error
        assert any(part in error for part in message.split("|")), error

    def test_a_guided_job_is_another_job(
        self, tmp_path: object, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = f"{tmp_path}/s.jsonl"
        job = ["sample", "--model", "oracle:cyclic-7", "--prompt", "AB", "--out", out]
        assert main(job) == 0
        assert main([*job, "--guidance", "2"]) == 1
        assert "holds another request: its given differs" in capsys.readouterr().err
