"""Every family through the commands of the docs: trained, sampled, scored and calibrated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import dsl
from dsl.cli.main import main
from dsl.evaluation.scoring import score
from dsl.families.base import Family
from dsl.families.registry import FAMILIES
from dsl.generation import samples as sample_file
from dsl.likelihoods.estimate import Effort
from dsl.samplers import registry as presets
from dsl.samplers.registry import SAMPLERS, example


@pytest.mark.parametrize(
    "family",
    [f if f.name == "dsl" else pytest.param(f, marks=pytest.mark.slow) for f in FAMILIES.values()],
    ids=lambda family: family.name,
)
def test_it_is_trained_sampled_scored_and_calibrated(
    family: Family, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands of the docs, with no word about the family but its name."""
    out, samples = tmp_path / "run", tmp_path / "s.jsonl"
    job = ["train", "cyclic", "--smoke", "--out", str(out)]
    cache = tmp_path / "cache"
    job += ["--set", f"objective={family.name}", "--cache", str(cache)]
    assert main(job) == 0
    assert main(job) == 0  # nothing left to do: the resolved recipe is the same
    assert "already trained to step 12" in capsys.readouterr().err
    model = str(out / "model")
    network = dsl.load(model).denoiser
    paths = {name: presets.sampler(example(name)) for name in SAMPLERS}
    served = [n for n, p in paths.items() if p.asks in family.protocol.__mro__]
    for name in SAMPLERS:
        drawn = [] if samples.exists() else ["--out", str(samples)]
        job = ["sample", "-n", "4", "--model", model, "--sampler", example(name, 6), *drawn]
        assert main(job) == (0 if name in served else 1)
        error = capsys.readouterr().err
        assert ("does not fit this sampler" in error) is (name not in served)
    assert main(["likelihood", model, str(samples), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    labels = [estimator.label for estimator in family.estimators(network, Effort())]
    assert [list(text["bits_per_token"]) for text in result["texts"]] == [labels] * 4
    first = family.validated[0]
    # twelve steps teach hardly anything
    found = [text["bits_per_token"][first] for text in result["texts"]]
    torch.manual_seed(1)
    fresh = replace(dsl.load(model), denoiser=family.build(network.config).eval())
    rows = [torch.tensor(row.tokens) for row in sample_file.read(samples)[1]]
    assert sum(found) / 4 == pytest.approx(
        score(fresh, rows, only=[first]).bits_per_token(first).mean, rel=0.08
    )
    assert main(["likelihood", model, str(samples)]) == 0
    assert main(["calibrate", model, "cyclic-7", "--limit", "8", "--cache", str(cache)]) == 0
