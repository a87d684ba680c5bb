from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
import torch
from torch import Tensor

from dsl.apps.zoo.candi import AtMixture
from dsl.apps.zoo.sedd import AtScoreTime
from dsl.apps.zoo.timed import AtTime
from dsl.checkpoints.loading import Model
from dsl.cli.main import main
from dsl.core import oracle
from dsl.core.denoiser import Endpoints
from dsl.core.streams import Streams, stream
from dsl.evaluation.calibration import (
    _bootstrap,
    answers,
    calibrate,
    calibrate_at,
    reliability,
    risk_coverage,
)
from dsl.families.levels import LADDER, AtClock, AtSNR, Level, Masked
from dsl.families.registry import FAMILIES
from dsl.families.vp import VpModel, VpShape
from tests.apps.zoo.test_candi import Exact as ExactMixed
from tests.exact_times import ExactScored, ExactTimed, enumerated

CHAIN = oracle.markov(6, 8)
SHAPE = {"hidden_dim": 16, "cond_dim": 4, "n_blocks": 1, "n_heads": 2}
CLOCKED = VpShape(6, codebook_dim=5, **SHAPE)


class Sharpened:
    """An exact denoiser that is three times as sure as it should be."""

    codebook, snr_max = CHAIN.codebook, CHAIN.snr_max
    vocab_size, device = CHAIN.vocab_size, CHAIN.device

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        return 3 * CHAIN(z, at=at)


def untrained(name: str) -> torch.nn.Module:
    """A small network of a family."""
    family = FAMILIES[name]
    return family.build(family.shape(6, 8, {**SHAPE, "evidence_logits": False})).eval()


def draws(n: int) -> Tensor:
    return CHAIN.sample(n, generator=stream(0))


@pytest.mark.parametrize("level", [Masked(), AtSNR(0.5), AtSNR(4.0), AtSNR(10.0)])
def test_an_exact_posterior_is_calibrated(level: Level) -> None:
    """At every level, and no temperature improves it."""
    found = calibrate_at(CHAIN, draws(1500), level)
    assert found.ece < 0.03
    assert 0.85 < found.temperature < 1.18
    assert abs(found.confidence - found.accuracy) < 0.03


SHORT = enumerated(oracle.markov(4, 4))
AT_TIMES = [
    (ExactTimed(SHORT, "absorbing"), AtTime),
    (ExactTimed(SHORT, "uniform"), AtTime),
    (ExactScored(SHORT, "absorbing"), AtScoreTime),
    (ExactScored(SHORT, "uniform"), AtScoreTime),
    (ExactMixed(SHORT), AtMixture),
]


@pytest.mark.parametrize("t", [0.3, 0.8])
@pytest.mark.parametrize(("network", "level"), AT_TIMES)
def test_so_is_that_of_a_process_at_any_time(
    network: Any, level: Callable[[float], Level], t: float
) -> None:
    """Whatever the network is asked: a posterior, score ratios, or tokens seen through noise."""
    tokens = SHORT.sample(1500, generator=stream(0))
    found = calibrate_at(network, tokens, level(t))
    assert found.ece < 0.04
    assert 0.8 < found.temperature < 1.25
    assert abs(found.confidence - found.accuracy) < 0.04


def test_too_sure_a_model_is_found_out_and_mended() -> None:
    found = calibrate_at(Sharpened(), draws(600), AtSNR(1.0))
    assert found.ece > 0.1
    assert found.temperature == pytest.approx(3, rel=0.2)
    assert found.ece_after < 0.3 * found.ece
    assert found.ece_stderr < 0.03


@pytest.mark.parametrize("bins", [5, 15])
def test_ece_is_the_mean_gap_weighted_by_the_size_of_the_bins(bins: int) -> None:
    """Computed bin by bin: Σ |bin| / n · |accuracy - confidence|, bins open below."""
    p = torch.randn(4000, 7, generator=stream(1)).softmax(-1)
    target = torch.randint(7, (4000,), generator=stream(2))
    confidence, guess = p.max(dim=-1)
    correct = guess == target
    ours = reliability(confidence, correct, bins=bins)
    expected = 0.0
    for i in range(bins):
        inside = (confidence > i / bins) & (confidence <= (i + 1) / bins)
        if inside.any():
            gap = correct[inside].double().mean() - confidence[inside].double().mean()
            expected += float(inside.double().mean() * gap.abs())
    assert ours.ece == pytest.approx(expected, abs=1e-6)
    assert sum(ours.count) == 4000


def test_the_error_of_the_ece_is_that_of_resampled_sequences() -> None:
    """The same as resampling the answers themselves, sequence by sequence."""
    found = answers(CHAIN, draws(40), AtSNR(1.0), generator=Streams.derive(0, range(40)))
    generator = torch.Generator().manual_seed(3)
    values = []
    for _ in range(20):
        drawn = torch.randint(40, (40,), generator=generator).tolist()
        rows = torch.cat([(found.sequence == i).nonzero().squeeze(1) for i in drawn])
        values.append(reliability(found.confidence[rows], found.correct[rows], bins=7).ece)
    assert _bootstrap(found, 7, 20, 3) == pytest.approx(stdev(values))


def test_risk_falls_with_confidence_and_ends_at_the_error_rate() -> None:
    found = answers(CHAIN, draws(500), AtSNR(1.0), generator=Streams.derive(0, range(500)))
    curve = risk_coverage(found.confidence, found.correct)
    assert curve.coverage[-1] == 1.0
    assert curve.risk[-1] == pytest.approx(1 - float(found.correct.double().mean()))
    assert curve.risk[0] < 0.7 * curve.risk[-1]
    surest = risk_coverage(
        torch.tensor([0.9, 0.8, 0.1]), torch.tensor([True, True, False]), points=3
    )
    assert surest.risk == pytest.approx((0, 0, 1 / 3))
    assert surest.area == pytest.approx(1 / 9)


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_is_asked_what_it_can_answer(name: str) -> None:
    """An untrained network knows nothing, and is asked at every level of its family."""
    family, network = FAMILIES[name], untrained(name)
    found = calibrate(Model(name, network, None, 8, family), draws(8))
    asked = [level.label for level in family.levels(network)]
    assert [one.level for one in found] == asked and asked
    for one in found:
        assert 0 < one.positions <= 32
        assert one.bits == pytest.approx(torch.log2(torch.tensor(6.0)).item(), rel=1e-4)


def test_the_ladders_are_those_of_the_families() -> None:
    def labels(name: str, network: object) -> list[str | float]:
        return [level.label for level in FAMILIES[name].levels(network)]

    assert labels("dsl", CHAIN) == ["masked", *LADDER]
    assert labels("dsl", oracle.two_bit()) == ["masked", *LADDER], "one coordinate will do"
    assert labels("mdlm", untrained("mdlm")) == ["masked"]
    assert labels("ar", untrained("ar")) == ["prefix"]
    assert labels("vp", VpModel(CLOCKED)) == list(LADDER)


def test_a_network_with_a_clock_is_told_the_level() -> None:
    model = VpModel(CLOCKED).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    tokens, seen = draws(4), []
    ask = model.at_snr

    def spy(z: Tensor, snr: Tensor) -> Tensor:
        seen.append(snr)
        return ask(z, snr)

    model.at_snr = spy  # type: ignore[method-assign]
    calibrate_at(model, tokens, AtClock(8.0))
    assert seen and all((snr == 8).all() for snr in seen)
    vp = FAMILIES["vp"]
    assert list(vp.levels_at(model, (0.5, 8.0))) == [AtClock(0.5), AtClock(8.0)]
    with pytest.raises(ValueError, match=r"the network's SNRs lie in 0.001 … 100, got \[1000.0\]"):
        vp.levels_at(model, (1000.0,))
    for name in ("mdlm", "ar"):
        with pytest.raises(ValueError, match="have no continuous states"):
            FAMILIES[name].levels_at(untrained(name), (2.0,))


def test_what_cannot_be_calibrated_is_said() -> None:
    with pytest.raises(ValueError, match="needs at least 4, got 3"):
        calibrate_at(CHAIN, draws(3), AtSNR(1.0))
    with pytest.raises(ValueError, match="at least one answer"):
        reliability(torch.zeros(0), torch.zeros(0, dtype=torch.bool))
    broken = oracle.markov(6, 8)
    broken.log_initial.fill_(torch.nan)
    with pytest.raises(ValueError, match="NaN logits"):
        calibrate_at(broken, draws(4), AtSNR(1.0))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "chain.txt"
    corpus.write_text("\n".join("".join("abcdef"[t] for t in row) for row in draws(40).tolist()))
    job = ["calibrate", "oracle:markov", str(corpus), "--limit", "32"]
    assert main([*job, "--snr", "1", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [level["level"] for level in found["levels"]] == [1, 8]
    assert len(found["levels"][0]["reliability"]["count"]) == 15
    assert main([*job, "--bins", "5"]) == 0
    assert "masked" in capsys.readouterr().out
    for bad in (["--snr", "-1"], ["--limit", "2"]):
        assert main([*job[:3], *bad]) == 1
        assert f"{bad[0]} must lie in" in capsys.readouterr().err
    assert main(["calibrate", "oracle:markov", str(tmp_path / "none.txt")]) == 1
    assert "no corpus at" in capsys.readouterr().err


def test_there_are_as_many_bins_as_are_asked_for() -> None:
    for bins in (2, 40):
        (found,) = calibrate("oracle:markov", draws(16), snrs=[2.0], bins=bins)
        assert len(found.reliability.count) == bins


def test_where_an_answer_is_right_its_cost_is_its_doubt() -> None:
    found = answers(CHAIN, draws(8), AtSNR(2.0), generator=Streams.derive(0, range(8)))
    right = found.correct
    assert right.any() and not right.all()
    torch.testing.assert_close(found.nats[right], -found.confidence[right].log())
    assert (found.nats[~right] > -found.confidence[~right].log()).all()


def test_finer_bins_hide_less_after_tempering_too() -> None:
    """Merging bins cannot raise the error: it averages what the finer ones tell apart."""
    tokens = draws(32)
    rough, fine = (calibrate_at(Sharpened(), tokens, AtSNR(2.0), bins=b) for b in (1, 40))
    assert rough.ece <= fine.ece + 1e-12
    assert rough.ece_after < fine.ece_after
