"""The source of a corpus as the judge of samples: exact numbers, by two routes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsl.apps.stories import corpus as stories
from dsl.checkpoints.loading import BUNDLED
from dsl.cli.main import main
from dsl.data.tokenizers import byte_level
from dsl.evaluation.judges import Teacher, is_ours
from tests.llamas import small_teacher


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSL_CACHE", str(tmp_path))
    small_teacher(tmp_path)
    return tmp_path


def test_its_nats_of_what_it_drew_are_those_of_the_draw(cache: Path) -> None:
    source = stories.teacher(cache)
    judge = Teacher.load(source.folder)
    assert is_ours(source.folder)
    drawn = list(stories.Draws.of(source).stories(20, lambda *_: None))
    rows = [tokens for tokens, _, _ in drawn]
    found = judge.score([judge.model.decode(row) for row in rows], rows, source.tokenizer)
    assert found.nats.tolist() == pytest.approx([nats for _, nats, _ in drawn], rel=1e-4)
    assert found.tokens.tolist() == [len(row) for row in rows]
    padded = [[*row, *[source.end] * (24 - len(row))] for row in rows]
    again = judge.score([""] * 20, padded, source.tokenizer)
    assert again.nats.tolist() == pytest.approx(found.nats.tolist(), rel=1e-5)
    assert again.tokens.tolist() == found.tokens.tolist(), "padding costs and counts nothing"
    strayed = [[*row[:-1], source.end, 0, source.end, 1] for row in rows if row[-1] == source.end]
    closed = [nats for (row, nats, _) in drawn if row[-1] == source.end]
    beyond = judge.score([""] * len(strayed), strayed, source.tokenizer)
    assert closed and beyond.nats.tolist() == pytest.approx(closed, rel=1e-4)


def test_texts_in_other_tokens_are_read_as_texts(cache: Path) -> None:
    source = stories.teacher(cache)
    judge = Teacher.load(source.folder)
    text = "the cat at the cat"
    own = [*judge.model.encode(text), source.end]
    direct = judge.score([text], [own], source.tokenizer)
    read = judge.score([text], [list(text.encode())], byte_level())
    assert float(read.nats[0]) == pytest.approx(float(direct.nats[0]))
    assert float(read.characters[0]) == len(text)


def test_only_a_causal_model_can_judge(cache: Path) -> None:
    with pytest.raises(ValueError, match=r"a judge must be a causal model .* of family mdlm"):
        Teacher.load(BUNDLED / "text8-tiny-mdlm")


def test_the_command_judges_by_the_teacher(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Samples of the source itself cost what held-out text of the corpus costs."""
    name, out = f"teacher:{stories.NAME}", str(tmp_path / "s.jsonl")
    assert main(["sample", "--model", name, "--sampler", "causal", "-n", "40", "--out", out]) == 0
    job = ["evaluate", out, "--reference", "stories-600", "--features", "none", "--judge", name]
    assert main([*job, "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    ours, real = (found[side]["judged_nats"] for side in ("scores", "held_out"))
    gap = abs(ours["mean"] - real["mean"])
    assert gap < 5 * (ours["stderr"] ** 2 + real["stderr"] ** 2) ** 0.5
    assert main(["evaluate", out, "--reference", "stories-600", "--judge", "teacher:gpt9"]) == 1
    assert "unknown teacher 'teacher:gpt9'" in capsys.readouterr().err
