from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dsl import oracle
from dsl.baselines.ar import ArModel
from dsl.baselines.mdlm import MdlmModel
from dsl.baselines.vp import VpModel
from dsl.cli.main import main
from dsl.denoiser import Endpoints
from dsl.evaluation.calibration import (
    LEVELS,
    MASKED,
    PREFIX,
    answers,
    calibrate,
    levels_of,
    reliability,
    risk_coverage,
)
from dsl.models.config import ModelConfig
from dsl.streams import Streams, stream

CHAIN = oracle.markov(6, 8)
CONFIG = ModelConfig(6, codebook_dim=5, hidden_dim=16, cond_dim=4, n_blocks=1, n_heads=2)


class Sharpened:
    """An exact denoiser that is three times as sure as it should be."""

    codebook, snr_max = CHAIN.codebook, CHAIN.snr_max

    def __call__(self, z: Tensor | Endpoints, /, *, at: Tensor | None = None) -> Tensor:
        return 3 * CHAIN(z, at=at)


def draws(n: int) -> Tensor:
    return CHAIN.sample(n, generator=stream(0))


@pytest.mark.parametrize("level", [MASKED, 0.5, 4.0, 10.0])
def test_an_exact_posterior_is_calibrated(level: float | str) -> None:
    """At every level, and no temperature improves it."""
    found = calibrate(CHAIN, draws(1500), level)
    assert found.ece < 0.03
    assert 0.85 < found.temperature < 1.18
    assert abs(found.confidence - found.accuracy) < 0.03


def test_too_sure_a_model_is_found_out_and_mended() -> None:
    found = calibrate(Sharpened(), draws(600), 1.0)
    assert found.ece > 0.1
    assert found.temperature == pytest.approx(3, rel=0.2)
    assert found.ece_after < 0.3 * found.ece
    assert found.ece_stderr < 0.03


@pytest.mark.parametrize("bins", [5, 15])
def test_ece_is_that_of_torchmetrics(bins: int) -> None:
    metrics = pytest.importorskip("torchmetrics", reason="the extra 'eval' is not installed")
    p = torch.randn(4000, 7, generator=stream(1)).softmax(-1)
    target = torch.randint(7, (4000,), generator=stream(2))
    theirs = metrics.functional.classification.multiclass_calibration_error(
        p, target, num_classes=7, n_bins=bins, norm="l1"
    )
    confidence, guess = p.max(dim=-1)
    ours = reliability(confidence, guess == target, bins=bins)
    assert ours.ece == pytest.approx(float(theirs), abs=1e-6)
    assert sum(ours.count) == 4000


def test_risk_falls_with_confidence_and_ends_at_the_error_rate() -> None:
    found = answers(CHAIN, draws(500), 1.0, generator=Streams.derive(0, range(500)))
    curve = risk_coverage(found.confidence, found.correct)
    assert curve.coverage[-1] == 1.0
    assert curve.risk[-1] == pytest.approx(1 - float(found.correct.double().mean()))
    assert curve.risk[0] < 0.7 * curve.risk[-1]
    surest = risk_coverage(
        torch.tensor([0.9, 0.8, 0.1]), torch.tensor([True, True, False]), points=3
    )
    assert surest.risk == pytest.approx((0, 0, 1 / 3))
    assert surest.area == pytest.approx(1 / 9)


def test_each_model_is_asked_what_it_can_answer() -> None:
    assert levels_of(CHAIN) == list(LEVELS)
    assert levels_of(MdlmModel(CONFIG)) == [MASKED]
    assert levels_of(ArModel(CONFIG)) == [PREFIX]
    tokens = draws(8)
    for model in (MdlmModel(CONFIG), ArModel(CONFIG), VpModel(CONFIG)):
        for level in levels_of(model.eval()):
            found = calibrate(model, tokens, level)
            assert 0 < found.positions <= 32
            assert found.bits == pytest.approx(torch.log2(torch.tensor(6.0)).item(), rel=1e-4)


def test_a_network_with_a_clock_is_told_the_level() -> None:
    model = VpModel(CONFIG).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    tokens, seen = draws(4), []
    ask = model.at_snr

    def spy(z: Tensor, snr: Tensor) -> Tensor:
        seen.append(snr)
        return ask(z, snr)

    model.at_snr = spy  # type: ignore[method-assign]
    calibrate(model, tokens, 8.0)
    assert all((snr == 8).all() for snr in seen)
    assert levels_of(model, (0.5, 8.0)) == [0.5, 8.0]
    with pytest.raises(ValueError, match="cannot be asked at SNR 1000"):
        levels_of(model, (1000.0,))
    with pytest.raises(ValueError, match="cannot be asked at SNR 2"):
        levels_of(MdlmModel(CONFIG), (2.0,))
    assert levels_of(oracle.two_bit()) == list(LEVELS), "one coordinate, and states between"


def test_what_cannot_be_calibrated_is_said() -> None:
    with pytest.raises(ValueError, match="needs 4 at least, got 3"):
        calibrate(CHAIN, draws(3), 1.0)
    with pytest.raises(ValueError, match="only an autoregressive model"):
        calibrate(CHAIN, draws(4), PREFIX)
    with pytest.raises(ValueError, match="at least one answer"):
        reliability(torch.zeros(0), torch.zeros(0, dtype=torch.bool))
    broken = oracle.markov(6, 8)
    broken.log_initial.fill_(torch.nan)
    with pytest.raises(ValueError, match="NaN logits"):
        calibrate(broken, draws(4), 1.0)


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
        assert f"{bad[0]} must be" in capsys.readouterr().err
    assert main(["calibrate", "oracle:markov", str(tmp_path / "none.txt")]) == 1
    assert "no corpus at" in capsys.readouterr().err
