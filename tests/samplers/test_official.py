"""`fb` and `dfm` as ReMDM's code has them, beside their description put into matrices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dsl.core.alpha import Linear
from dsl.core.denoiser import Endpoints
from dsl.core.streams import stream
from dsl.samplers.corrector import Corrector
from dsl.samplers.masked import Ancestral, intervals, reveal_probability
from dsl.samplers.registry import sampler
from dsl.samplers.state import State
from tests.doubles import Double

POSTERIOR = torch.tensor([0.1, 0.45, 0.15, 0.3]).double()
NUCLEUS = torch.tensor([0.0, 0.6, 0.0, 0.4]).double()
"""What top-p 0.8 leaves: .45 + .3 fit, the .15 that crosses does not."""
HIDDEN = len(POSTERIOR)
"""The index of [MASK] in the matrices."""


class Same(Double):
    """A denoiser that says the same of every position, whatever the state."""

    codebook = torch.eye(4).double()
    snr_max = 100.0

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        assert at is not None
        return POSTERIOR.log().expand(int(at.sum()), -1)


def transition(reveal: float, remask: float) -> Tensor:
    """Return the chances of going from every token, and from [MASK], to every other."""
    matrix = (1 - remask) * torch.eye(HIDDEN + 1).double()
    matrix[:, HIDDEN] = remask
    matrix[HIDDEN, :HIDDEN] = reveal * NUCLEUS
    matrix[HIDDEN, HIDDEN] = 1 - reveal
    return matrix


def forward_backward(steps: int) -> list[tuple[float, float]]:
    """Describe FB: a step of dt reveals 2 dt of the t masked tokens, and hides dt of the others.

    Weights are drawn from without being made to sum to one: where the reveals would exceed one,
    the weight of [MASK] is negative and never drawn. At t = 1 only dt are revealed: there is
    nothing to hide yet.
    """
    dt = (1 - 1e-5) / steps
    pairs = [(dt, 1.0)]
    for k in range(1, steps):
        t = 1 - k * dt
        pairs.append((min(1.0, 2 * dt / t), dt / (1 - t)))
    return pairs


def flow_matching(steps: int) -> list[tuple[float, float]]:
    """Describe DFM: 1/T at first, then 1/T or what keeps both chances below one in sum."""
    t, pairs = 1 - 1 / steps, [(1 / steps, 0.0)]
    while t > (1 - 1e-5) / steps:
        back = 10 * t**0.25 * (1 - t) ** 0.25
        reveal_rate, remask_rate = (back + 1) / t, back / (1 - t)
        dt = min(1 / steps, 1 / (reveal_rate + remask_rate))
        pairs.append((reveal_rate * dt, remask_rate * dt))
        t -= dt
    return pairs


OFFICIAL = {"fb": forward_backward, "dfm": flow_matching}


def rates(name: str) -> list[tuple[float, float]]:
    """Return the reveal and the remask probability of every step of a sampler of ours."""
    path = sampler(name)
    if isinstance(path, Corrector):
        return path.grid()
    assert isinstance(path, Ancestral)
    pairs, state = [], State.blank(1, 1)
    for step in intervals(Linear(), path.num_steps):
        sigma = path.remask(step, state)
        pairs.append((float(reveal_probability(step, sigma)), float(sigma)))
    return pairs


@pytest.mark.parametrize("steps", [1, 2, 7, 64, 1024])
@pytest.mark.parametrize("name", OFFICIAL)
def test_the_probabilities_of_every_step_are_the_official_ones(name: str, steps: int) -> None:
    ours = torch.tensor(rates(f"{name}@{steps}:official=true")).double().clamp(0, 1)
    wanted = torch.tensor(OFFICIAL[name](steps)).double()
    torch.testing.assert_close(ours, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", OFFICIAL)
def test_tokens_move_as_the_official_probabilities_say(name: str) -> None:
    """Count the moves of 65,536 tokens in each step, from every state to every other."""
    path = sampler(f"{name}@6:official=true,top_p=0.8")
    before = torch.full((64 * 1024,), HIDDEN)
    states = path.steps(Same(), State.blank(64, 1024), generator=stream(0))
    greedy = torch.eye(HIDDEN + 1).double()
    greedy[HIDDEN] = greedy[int(POSTERIOR.argmax())]
    matrices = [transition(*pair) for pair in OFFICIAL[name](6)]
    for matrix, state in zip([*matrices, greedy], states, strict=True):
        after = torch.where(state.masked, HIDDEN, state.tokens).flatten()
        moves = torch.zeros(HIDDEN + 1, HIDDEN + 1).double()
        moves.index_put_((before, after), torch.ones(len(after)).double(), accumulate=True)
        wanted = matrix * moves.sum(dim=1, keepdim=True)
        error = (wanted * (1 - matrix)).clamp(min=0).sqrt()
        # 1e-6 forgives rounding of a chance of 0 or 1, not a single move against it
        assert ((moves - wanted).abs() <= 5 * error + 1e-6).all()
        before = after


@pytest.mark.parametrize("steps", [8, 64, 1024])
def test_the_last_step_of_forward_backward_hides_one_token_in_t(steps: int) -> None:
    """Ours hides none; all other steps are the same."""
    official, ours = rates(f"fb@{steps}:official=true"), rates(f"fb@{steps}")
    close = [pytest.approx(pair, rel=1e-9) for pair in ours[:-1]]
    assert official[:-1] == close
    visible = 1 - 1 / steps
    assert official[-1][1] * visible == pytest.approx(1 / steps, rel=1e-3)
    assert ours[-1][1] < 2e-5


@pytest.mark.parametrize("steps, official, ours", [(4, 18, 51), (64, 72, 88), (1024, 1025, 1032)])
def test_the_corrector_stops_a_step_before_the_end(steps: int, official: int, ours: int) -> None:
    """The official walk is a beginning of ours, and leaves at most 1/T of the tokens masked."""
    short, long = rates(f"dfm@{steps}:official=true"), rates(f"dfm@{steps}")
    assert (len(short), len(long)) == (official, ours)
    assert long[: len(short)] == short
    visible = 0.0
    for reveal, remask in short:
        visible += (1 - visible) * reveal - visible * remask
    assert 0.5 / steps < 1 - visible <= 1 / steps
