"""The MDLM family: masks and tokens, its bound, and the published layout of its weights."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from dsl.checkpoints.mdlm import convert, parity, read
from dsl.core.denoiser import Continuous, Denoiser, Endpoints
from dsl.core.streams import Streams
from dsl.core.types import MASK
from dsl.families.mdlm import LEAST_TIME
from dsl.families.objective import Loss
from dsl.families.registry import FAMILIES
from dsl.likelihoods.roar import Enumerated
from tests.conftest import assert_near
from tests.families.conftest import TOKENS, awake, untrained

MDLM = FAMILIES["mdlm"]


def test_untrained_its_bound_is_the_uniform_one() -> None:
    """In expectation, its time being cut at 1e-3."""
    objective, places = MDLM.objective(untrained(MDLM), MDLM.Options()), range(64)
    draws = torch.stack([
        objective(TOKENS, Streams.derive(seed, places), places, 64).mean for seed in range(60)
    ]).detach()  # fmt: skip
    error = float(draws.std()) / 60**0.5
    assert abs(float(draws.mean()) - math.log(5) * (1 - LEAST_TIME)) < 4 * error


@pytest.mark.parametrize(
    "chosen",
    [{}, {"schedule": "cosine"}, {"schedule": "polynomial", "power": 3.0}],
    ids=["linear", "cosine", "polynomial"],
)
def test_every_schedule_has_the_same_bound(chosen: dict[str, Any]) -> None:
    """In expectation, up to the 0.2% below the least time: the integral over α is ROAR's sum."""
    network, text = awake(MDLM), TOKENS[:1].expand(64, -1)
    objective, places = MDLM.objective(network, MDLM.Options(**chosen)), range(64)
    with torch.no_grad():
        draws = torch.stack([
            objective(text, Streams.derive(seed, places), places, 64).mean for seed in range(60)
        ])  # fmt: skip
    wanted = float(Enumerated()(network, TOKENS[:1]).nats) / 6
    error = 4 * float(draws.std()) / 60**0.5
    assert error < 0.1 * wanted
    assert abs(float(draws.mean()) - wanted) < error + 0.004 * wanted


def test_schedules_mask_as_many_as_they_say_and_the_first_power_is_linear() -> None:
    def drawn(**chosen: Any) -> Loss:
        objective = MDLM.objective(awake(MDLM), MDLM.Options(**chosen))
        torch.manual_seed(0)
        found: Loss = objective(TOKENS, Streams.derive(0, range(64)), range(64), 64)
        return found

    torch.manual_seed(0)
    linear = drawn()
    first = drawn(schedule="polynomial", power=1.0)
    assert float(first.sum.detach()) == pytest.approx(float(linear.sum.detach()), rel=1e-5)
    for power, share in ((1.5, 2 / 5), (1.0, 1 / 2), (3.0, 1 / 4)):  # E[t^w] = 1/(1 + w)
        masked = drawn(schedule="polynomial", power=power).parts["masked"][1]
        assert abs(float(masked) / TOKENS.numel() - share) < 0.08
    cosine = drawn(schedule="cosine").parts["masked"][1]
    assert abs(float(cosine) / TOKENS.numel() - 2 / math.pi) < 0.08
    with pytest.raises(ValueError, match=r"power of a schedule must lie in \[1, 100\], got 0.25"):
        MDLM.Options(schedule="polynomial", power=0.25)


def test_masked_positions_alone_have_a_loss() -> None:
    objective = MDLM.objective(untrained(MDLM), MDLM.Options())
    parts = objective(TOKENS, Streams.derive(0, range(64)), range(64), 64).parts
    value, count = parts["masked"]
    assert float(value / count) == pytest.approx(math.log(5))
    assert 0.4 < float(count) / TOKENS.numel() < 0.6  # times are uniform


def test_plain_weights_count_every_masked_position_once() -> None:
    """The mean is that of the masked positions; the parts still tell the bound."""
    network, streams = awake(MDLM), Streams.derive(0, range(64))
    plain = MDLM.objective(network, MDLM.Options(weight="plain"))(TOKENS, streams, range(64), 64)
    bound = MDLM.objective(network, MDLM.Options())(
        TOKENS, Streams.derive(0, range(64)), range(64), 64
    )
    value, count = plain.parts["masked"]
    assert float(plain.mean.detach()) == pytest.approx(float(value / count), rel=1e-5)
    total, positions = plain.parts["all"]
    assert float(bound.mean.detach()) == pytest.approx(float(total / positions), rel=1e-5)
    assert float(plain.mean.detach()) != pytest.approx(float(bound.mean.detach()), rel=1e-3)


@torch.no_grad()
def test_it_answers_about_any_masked_token() -> None:
    """A mask is an id of its own, which is never an answer."""
    model = awake(MDLM)
    assert isinstance(model, Denoiser) and not isinstance(model, Continuous)
    tokens = TOKENS.clone()
    tokens[:, [0, 4]] = MASK
    raw = model.backbone(tokens.masked_fill(tokens == MASK, 5))
    assert raw.shape[-1] == 6
    assert_near(model(Endpoints(tokens)), raw[..., :5])
    at = tokens == MASK
    assert_near(model(Endpoints(tokens), at=at), raw[at][..., :5])


def test_it_refuses_continuous_states() -> None:
    model = untrained(MDLM)
    for state in (torch.zeros(1, 3, 5), Endpoints(TOKENS[:1], torch.zeros(1, 6, 5))):
        with pytest.raises(ValueError, match="reads masks and tokens only"):
            model(state)
    with pytest.raises(ValueError, match=r"token ids must lie in -1 … 4"):
        model(Endpoints(torch.tensor([[5]])))


def test_it_is_written_in_the_official_layout(tmp_path: Path) -> None:
    MDLM.write(awake(MDLM), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["time_conditioning"] is False
    source = read(tmp_path)
    model = convert(source)
    with torch.no_grad():
        model.converter.bias[-1] = 50.0
    assert parity(source, model, length=16) < 1e-4
