from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsl._util import extras
from dsl.cli.main import main
from dsl.evaluation import diversity
from dsl.evaluation.suite import differences, require_same

ids = st.lists(st.integers(0, 5), min_size=1, max_size=40)


@given(ids)
def test_sentence_entropy_is_the_upstream_definition(tokens: list[int]) -> None:
    """torch.unique of the raw ids, the histogram normalised, a categorical's entropy in nats."""
    _, counts = torch.unique(torch.tensor(tokens), return_counts=True)
    upstream = torch.distributions.Categorical(probs=counts.double() / counts.sum()).entropy()
    assert diversity.sentence_entropy(tokens) == pytest.approx(float(upstream), abs=1e-6)


@given(st.lists(ids, min_size=1, max_size=5), st.integers(1, 4))
def test_repetition_and_distinctness_count_ngrams(samples: list[list[int]], n: int) -> None:
    every = [gram for tokens in samples for gram in diversity.ngrams(tokens, n)]
    if every:
        assert diversity.distinct(samples, n) == len(set(every)) / len(every)
    for tokens in samples:
        if len(tokens) >= n:
            grams = Counter(diversity.ngrams(tokens, n))
            repeated = sum(count - 1 for count in grams.values())
            assert diversity.repetition(tokens, n) == pytest.approx(repeated / grams.total())


@settings(deadline=None)
@given(ids, st.lists(ids, min_size=1, max_size=4), st.integers(1, 4), st.booleans())
def test_novelty_is_the_share_of_unseen_ngrams(
    training: list[int], samples: list[list[int]], n: int, large: bool
) -> None:
    seen = set(diversity.ngrams(training, n))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diversity, "SORTED_AT_MOST", 0 if large else 100)
        found = diversity.Seen(np.array(training), n).novelty(samples)
    for value, tokens in zip(found, samples, strict=True):
        grams = diversity.ngrams(tokens, n)
        if grams:
            assert value == pytest.approx(sum(g not in seen for g in grams) / len(grams))
        else:
            assert math.isnan(value)


def test_words_cut_by_the_edge_are_not_judged() -> None:
    known = frozenset({"the", "cat"})
    assert diversity.known_words("he the cat xyz sa", known) == pytest.approx(2 / 3)
    assert math.isnan(diversity.known_words("abc", known))
    assert diversity.known_words("he the xyz ", known) == pytest.approx(1 / 2), "whole to the end"
    assert diversity.known_words(" the xyz sa", known) == pytest.approx(1 / 2), "and from it"


def test_protocols_that_differ_are_not_compared() -> None:
    one, other = {"features": "a", "seeds": 3}, {"features": "b", "seeds": 3}
    assert differences(one, other) == ["features: 'a' and 'b'"]
    with pytest.raises(ValueError, match="different protocols \\(features: 'a' and 'b'\\)"):
        require_same({"x": one, "y": other})
    require_same({"x": one, "y": other}, force=True)
    require_same({"x": one, "y": dict(one)})


class TestMauve:
    rng = np.random.default_rng(0)
    cloud = rng.normal(size=(200, 6)).astype(np.float32)
    same = rng.normal(size=(200, 6)).astype(np.float32)
    away = cloud + 8

    @pytest.fixture(autouse=True)
    def _installed(self) -> None:
        pytest.importorskip("mauve", reason="the extra 'eval' is not installed")

    def test_it_is_mauve_text_with_the_papers_settings(self) -> None:
        from mauve import compute_mauve

        from dsl.evaluation.mauve import mauve

        ours = mauve(self.cloud, self.same, seeds=2, resamples=2)
        theirs = compute_mauve(p_features=self.cloud, q_features=self.same, verbose=False)
        assert ours.value == pytest.approx(theirs.mauve, abs=1e-9)
        assert ours.buckets == 20
        assert ours.value > 0.8
        assert 0 < ours.stderr < 0.3
        assert mauve(self.cloud, self.away, seeds=1, resamples=0).value < 0.02

    def test_what_it_cannot_do_is_said(self) -> None:
        from dsl.evaluation.mauve import mauve

        with pytest.raises(ValueError, match="with 20 clusters needs at least 40 texts"):
            mauve(self.cloud, self.same[:10], buckets=20)
        broken = self.same.copy()
        broken[0, 0] = np.nan
        with pytest.raises(ValueError, match="must be finite"):
            mauve(self.cloud, broken)


@pytest.fixture(scope="session")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal language model of two layers that knows nothing, over bytes."""
    transformers: Any = pytest.importorskip(
        "transformers", reason="the extra 'eval' is not installed"
    )
    from tokenizers import AddedToken

    from dsl.data.tokenizers import byte_level

    folder = tmp_path_factory.mktemp("judge")
    tokenizer = byte_level()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>")])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>"
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=257, n_embd=16, n_layer=2, n_head=2, n_positions=256, eos_token_id=256,
        bos_token_id=256,
    )  # fmt: skip
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


def test_generative_perplexity_counts_what_mdlm_counts(judge: Path) -> None:
    """Not the first token; of several ends only the first; what follows it."""
    from dsl.evaluation.judges import Judge

    loaded = Judge.load(judge)
    text = "ab<|endoftext|>cd<|endoftext|>e"
    scored = loaded.score([text, "xyz"])
    nats, counts = scored.nats, scored.tokens
    tokens = torch.tensor([[97, 98, 256, 99, 100, 256, 101]])
    with torch.no_grad():
        logp = loaded.network(input_ids=tokens).logits[0].double().log_softmax(-1)
    counted = [1, 2, 3, 4, 6]
    wanted = -sum(float(logp[i - 1, tokens[0, i]]) for i in counted)
    assert counts.tolist() == [5, 2]
    assert scored.characters.tolist() == [4, 2], "an end of text is no character"
    bits = float(nats.sum()) / math.log(2) / 6
    assert scored.bits_per_character().mean == pytest.approx(bits)
    assert float(nats[0]) == pytest.approx(wanted, rel=1e-5)
    found = scored.perplexity()
    value, stderr = found.mean, found.stderr
    assert value == pytest.approx(math.exp(float(nats.sum()) / 7))
    assert stderr > 0
    alone = loaded.score(["xyz"]).nats
    assert float(nats[1]) == pytest.approx(float(alone[0]), rel=1e-5), "padding changes nothing"


def test_features_are_the_last_tokens_state(judge: Path) -> None:
    from dsl.evaluation.judges import Judge

    loaded = Judge.load(judge)
    rows = loaded.features(["abc", "wxyz"])
    with torch.no_grad():
        out = loaded.network(input_ids=torch.tensor([[97, 98, 99]]), output_hidden_states=True)
    np.testing.assert_allclose(rows[0], out.hidden_states[-1][0, -1], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="must not be empty"):
        loaded.score([""])


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("samples") / "s.jsonl"
    job = ["sample", "-n", "24", "--length", "32", "--sampler", "mdlm@4", "--out", str(out)]
    assert main([*job, "--model", "text8-tiny"]) == 0
    return out


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def judged(judge: Path, cache: Path) -> list[str]:
    return [
        "--reference", "python-docs", "--features", str(judge), "--judge", str(judge),
        "--resamples", "2", "--seeds", "2", "--cache", str(cache),
    ]  # fmt: skip


def test_samples_stand_beside_real_text(
    samples: Path, judge: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mauve", reason="the extra 'eval' is not installed")
    job = ["evaluate", str(samples), *judged(judge, cache)]
    assert main([*job, "--out", str(tmp_path / "r.json"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result == json.loads((tmp_path / "r.json").read_text())
    assert set(result["scores"]) == set(result["held_out"])
    assert result["nfe"]["mean"] == pytest.approx(4.0, abs=1.0)
    assert (
        result["held_out"]["known_words"]["mean"] > 0.85 > result["scores"]["known_words"]["mean"]
    )
    assert result["protocol"]["reference_texts"] == 24
    assert list((cache / "features").glob("*.npy"))
    assert main(job) == 0
    shown = capsys.readouterr().out
    assert "held-out real text" in shown and "MAUVE is unreliable" in shown


def test_without_features_nothing_is_said_of_mauve(
    samples: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ["evaluate", str(samples), *judged(Path("none"), cache)]
    assert main(job) == 0
    shown = capsys.readouterr().out
    assert "held-out real text" in shown and "MAUVE" not in shown


@pytest.mark.slow
def test_a_grid_is_resumed_cell_by_cell(
    judge: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mauve", reason="the extra 'eval' is not installed")
    out = tmp_path / "grid"
    job = ["compare", "text8-tiny/mdlm@T", "text8-tiny/roar", "--out", str(out), "-n", "20"]
    job += ["--steps", "2", "4", "--seeds-drawn", "2", "--length", "16", "--workers", "2"]
    job += judged(judge, cache)
    assert main([*job, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [(r["path"], round(r["nfe"])) for r in result["rows"]] == [
        ("mdlm@2", 2), ("mdlm@4", 4), ("roar", 16),
    ]  # fmt: skip
    assert all("mauve_stderr" in row for row in result["rows"])
    cells = sorted((out / "cells").glob("*.jsonl"))
    assert len(cells) == 6
    assert (out / "tradeoff.svg").is_file() and "| roar |" in (out / "table.md").read_text()
    before = {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    torn = cells[0].read_bytes().splitlines(keepends=True)
    cells[0].write_bytes(b"".join(torn[:5]))
    assert main(job) == 0
    after = {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    assert {path.name for path in before if before[path] != after[path]} == {cells[0].name}
    assert cells[0].read_bytes().count(b"\n") == 21


@pytest.mark.parametrize(
    "change, message",
    [
        (["--features", "nowhere"], "no model directory at 'nowhere'"),
        (["--buckets", "500"], "with 500 clusters needs at least 1000 texts"),
        (["--reference", "texd8"], "unknown corpus 'texd8'"),
        (["--split", "dev"], "has no split 'dev'"),
    ],
)
def test_mistakes_are_one_line(
    change: list[str],
    message: str,
    samples: Path,
    judge: Path,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["evaluate", str(samples), *judged(judge, cache), *change]) == 1
    assert message in capsys.readouterr().err


def test_empty_samples_and_missing_extras(
    samples: Path,
    judge: Path,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = samples.read_text().splitlines()[0]
    empty = samples.with_name("empty.jsonl")
    empty.write_text(first + "\n")
    assert main(["evaluate", str(empty), *judged(judge, cache)]) == 1
    assert "has no samples" in capsys.readouterr().err
    assert main(["compare", "text8-tiny", "--out", str(empty), *judged(judge, cache)]) == 1
    assert "a cell is MODEL/SAMPLER" in capsys.readouterr().err

    def missing(name: str) -> object:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(extras, "import_module", missing)
    assert main(["evaluate", str(samples), *judged(judge, cache)]) == 1
    assert "pip install 'discrete-stochastic-localization[eval]'" in capsys.readouterr().err
