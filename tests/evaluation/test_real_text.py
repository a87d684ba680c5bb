"""The default judges on real text; `dsl data minilm` and `dsl data smollm2` fetch them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from dsl.cli.data import default_cache
from dsl.cli.main import main
from dsl.data.catalogue import TEXT8_ALPHABET
from dsl.data.corpora import prepare
from dsl.data.tokenizers import characters
from dsl.evaluation.suite import Measure, Reference, Settings

pytestmark = pytest.mark.slow
N, LENGTH = 120, 128


@pytest.fixture(scope="module")
def judges() -> tuple[Path, Path]:
    folders = tuple(default_cache() / "oracles" / name for name in ("minilm", "smollm2"))
    if not all(folder.is_dir() for folder in folders):
        pytest.skip("the judges are not in the cache: dsl data minilm, dsl data smollm2")
    return folders  # type: ignore[return-value]


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    out = tmp_path_factory.mktemp("samples") / "s.jsonl"
    job = ["sample", "-n", str(N), "--batch-size", "20", "--sampler", "mdlm@32"]
    assert main([*job, "--out", str(out)]) == 0
    return [json.loads(line)["text"] for line in out.read_text().splitlines()[1:]]


def test_judges_rank_real_sampled_and_shuffled(
    judges: tuple[Path, Path], sampled: list[str], tmp_path: Path
) -> None:
    """MAUVE of real text is near 1 and of shuffled letters near 0; GenPPL orders all three."""
    corpus = prepare("python-docs", tmp_path)
    tokenizer = characters(TEXT8_ALPHABET)
    reference = Reference.cut(corpus, "train", N, LENGTH, tokenizer)
    settings = Settings(*judges, seeds=1, resamples=2)
    measure = Measure(settings, reference, tokenizer)
    rng = random.Random(0)
    shuffled = ["".join(rng.sample(text, len(text))) for text in reference.held_out]
    real = measure.held_out()
    wrong = measure.texts(shuffled, [list(text.encode()) for text in shuffled])
    ours = measure.texts(sampled, [list(text.encode()) for text in sampled])
    assert real["mauve"]["value"] > 0.85
    assert wrong["mauve"]["value"] < 0.05
    assert real["genppl"]["mean"] < 0.5 * ours["genppl"]["mean"]
    assert ours["genppl"]["mean"] < 0.8 * wrong["genppl"]["mean"]
