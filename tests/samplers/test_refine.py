"""How much refinement hides, and what it holds to be uncertain."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dsl.core import oracle
from dsl.core.denoiser import Endpoints
from dsl.core.streams import stream
from dsl.samplers.base import Sampler, last
from dsl.samplers.draw import Draw
from dsl.samplers.refine import Commit, Refine
from dsl.samplers.state import State
from tests.doubles import Double

B, L = 8, 10
# At γ_max = 2 a revealed token is still in doubt, so that confidences differ from one.
CHAIN = replace(oracle.markov(6, L, sharpness=0.7), snr_max=2.0)


class Spy(Double):
    """A denoiser that keeps what it was asked and what it answered."""

    codebook, snr_max = CHAIN.codebook, CHAIN.snr_max

    def __init__(self) -> None:
        self.asked: list[Endpoints | Tensor] = []
        self.logits = torch.empty(0)

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        self.asked.append(z)
        self.logits = CHAIN(z, at=at)
        return self.logits


def draft(confidence: float) -> State:
    """Sequences without a mask, every token drawn with this confidence."""
    state = State.blank(B, L)
    tokens = CHAIN.sample(B, generator=stream(0)).flatten()
    return state.commit(state.free, tokens, torch.full((B * L,), confidence).double())


@pytest.mark.parametrize(
    "confidence, share",
    [(1.0, 0.25), (0.9, 0.25), (0.75, 0.25), (0.5, 0.5), (0.25, 0.75), (0.1, 0.75), (0.0, 0.75)],
)
def test_the_first_share_is_the_mean_doubt_between_its_limits(
    confidence: float, share: float
) -> None:
    spy = Spy()
    last(Refine(3, r_min=0.25, r_max=0.75), spy, draft(confidence), generator=stream(1))
    first = spy.asked[0]
    assert isinstance(first, Endpoints)
    wanted = -int(-share * L // 1)  # ⌈share · l⌉
    assert ((first.tokens == -1).sum(dim=1) == wanted).all()


def test_what_is_pinned_is_in_no_doubt() -> None:
    """Half of the text is given, of which no sampler was ever sure: only the rest counts."""
    sure = draft(0.75)
    pinned = torch.zeros_like(sure.fixed)
    pinned[:, : L // 2] = True
    start = replace(
        sure, fixed=pinned, confidence=sure.confidence.masked_fill(pinned, 0.0)
    )  # fmt: skip
    spy = Spy()
    last(Refine(2, r_min=0.0, r_max=1.0), spy, start, generator=stream(1))
    assert isinstance(spy.asked[0], Endpoints)
    hidden = (spy.asked[0].tokens == -1).sum(dim=1)
    assert (hidden == 2).all(), "a quarter of five, rounded up"


@pytest.mark.parametrize("limit", [0.0, 0.3, 1.0])
def test_equal_limits_fix_the_share(limit: float) -> None:
    for confidence in (0.0, 0.6, 1.0):
        spy = Spy()
        walk = Refine(1, r_min=limit, r_max=limit)
        last(walk, spy, draft(confidence), generator=stream(1))
        assert isinstance(spy.asked[0], Endpoints)
        hidden = (spy.asked[0].tokens == -1).sum(dim=1)
        assert (hidden == round(limit * L)).all()


DRAWS = [Draw(), Draw(temperature=0.3), Draw(temperature=0.0), Draw(top_k=1), Draw(top_p=0.4)]


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(
    "kind", [Commit, lambda draw: Refine(1, draw), lambda draw: Refine(4, draw)]
)
def test_uncertainty_is_the_models_and_not_that_of_the_draw(kind: object, draw: Draw) -> None:
    """However cold the draw, the confidence is max_v p(v) of the last answer, untempered."""
    walk: Sampler = kind(draw)  # type: ignore[operator]
    spy = Spy()
    end = last(walk, spy, draft(0.5), generator=stream(1))
    wanted = spy.logits.softmax(-1).amax(-1).reshape(B, L)
    torch.testing.assert_close(end.confidence, wanted)
    assert float(end.confidence.mean()) < 0.9, "the toy leaves some doubt"
