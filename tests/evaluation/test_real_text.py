"""The default judges on real text; `dsl data minilm` and `dsl data smollm2` fetch them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

import dsl
from dsl.data.catalogue import TEXT8_ALPHABET
from dsl.data.corpora import prepare
from dsl.data.sources import default_cache
from dsl.data.tokenizers import characters
from dsl.evaluation.judges import kept
from dsl.evaluation.suite import Measure, Reference, Settings

pytestmark = pytest.mark.slow
N, LENGTH = 120, 128


@pytest.fixture(scope="module")
def measure(tmp_path_factory: pytest.TempPathFactory) -> Measure:
    folders = [kept(name, default_cache()) for name in ("minilm", "smollm2")]
    if None in folders:
        pytest.skip("the judges are not in the cache: dsl data minilm, dsl data smollm2")
    corpus = prepare("python-docs", tmp_path_factory.mktemp("cache"))
    tokenizer = characters(TEXT8_ALPHABET)
    reference = Reference.cut(corpus, "train", N, LENGTH, tokenizer)
    return Measure(Settings(*folders, seeds=1, resamples=2), reference, tokenizer)


def test_judges_rank_real_sampled_and_shuffled(measure: Measure) -> None:
    """MAUVE is near 1 of real text and near 0 of shuffled letters; the language model orders all.

    By perplexity only texts that fall into words alike can be compared: shuffled letters are many
    short tokens, each easier to guess than a piece of an invented word. So samples that have few
    invented words are ranked by GenPPL, and those of DSL by bits per character.
    """

    def scores(texts: list[str]) -> dict[str, dict[str, float]]:
        return measure.texts(texts, [list(text.encode()) for text in texts])

    rng = random.Random(0)
    real = measure.held_out()
    wrong = scores(["".join(rng.sample(t, len(t))) for t in measure.reference.held_out])
    sharp = [s.text for s in dsl.generate("text8-tiny-ar", 60, sampler="causal:temperature=0.7")]
    wordy = scores(sharp)
    ours = scores([s.text for s in dsl.generate("text8-tiny", 60, sampler="mdlm@32")])
    assert real["mauve"]["mean"] > 0.8
    assert wrong["mauve"]["mean"] < 0.05
    assert real["genppl"]["mean"] < wordy["genppl"]["mean"] < wrong["genppl"]["mean"]
    bits = [score["judged_bits"]["mean"] for score in (real, wordy, ours, wrong)]
    assert all(b > a + 0.25 for a, b in pairwise(bits))
