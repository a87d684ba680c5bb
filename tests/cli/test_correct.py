"""`dsl correct`: files of every format in, corrected files out, errors in one line."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from dsl.cli.main import main

MODEL = ["--model", "text8-tiny"]
QUICK = [*MODEL, "--mode", "marginal", "--no-lengths"]
DAMAGED, MENDED = "the united stetes of amerlca", "the united states of america"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    path = tmp_path / "page.txt"
    path.write_text(DAMAGED + "\n")
    return path


def test_a_file_is_corrected(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["correct", str(damaged), *MODEL]) == 0
    assert capsys.readouterr().out == MENDED + "\n"
    assert damaged.read_text() == DAMAGED + "\n", "what was read stays"


def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(DAMAGED.encode())))
    assert main(["correct", *QUICK]) == 0
    assert capsys.readouterr().out == MENDED


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("link", [False, True])
def test_originals_are_never_overwritten(
    several: bool,
    link: bool,
    damaged: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other, out = tmp_path / "other.txt", tmp_path / "out"
    other.write_text(DAMAGED)
    files, there = ([damaged, other], out / "page.txt") if several else ([damaged], out)
    out.mkdir() if several else None
    there.symlink_to(damaged) if link else None
    target = out if link else (tmp_path if several else damaged)
    assert main(["correct", *map(str, files), *QUICK, "--out", str(target)]) == 1
    assert "is an input file: choose another --out" in capsys.readouterr().err
    assert damaged.read_text() == DAMAGED + "\n" and other.read_text() == DAMAGED


def test_several_files_go_into_a_directory(
    damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    other.write_text('[{"word": "united", "conf": 1.0}, {"word": "stetes", "conf": 0.5}]')
    out = tmp_path / "out"
    assert main(["correct", str(damaged), str(other), *QUICK, "--out", str(out)]) == 0
    assert (out / "page.txt").read_text() == MENDED + "\n"
    assert json.loads((out / "other.json").read_text())[1]["word"] == "states"
    assert "2 changes in 29 characters" in capsys.readouterr().err


def test_json_lists_every_change(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["correct", str(damaged), *QUICK, "--to", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == MENDED + "\n" and found["model"] == "text8-tiny"
    assert [(e["begin"], e["old"], e["new"]) for e in found["edits"]] == [
        (13, "e", "a"), (25, "l", "i"),
    ]  # fmt: skip
    assert all(0.5 < e["probability"] <= 1 for e in found["edits"])


@pytest.mark.parametrize("form", ["text", "diff", "html"])
def test_other_forms(form: str, damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["correct", str(damaged), *QUICK, "--to", form]) == 0
    shown = capsys.readouterr().out
    assert (MENDED in shown) == (form == "text")
    assert form == "text" or "0.9" in shown


def test_confidences_and_gaps_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.txt"
    path.write_text("the history of engl{?}nd and the {stetes|1}")
    assert main(["correct", str(path), *QUICK]) == 0
    assert capsys.readouterr().out == "the history of england and the {stetes|1}"
    path.write_text("the history of engl#nd")
    assert main(["correct", str(path), *QUICK, "--gap", "#"]) == 0
    assert capsys.readouterr().out == "the history of england"


def test_a_fit_is_made_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A reader who says 0.9 of everything is right in 94 of 100 letters."""
    words = [{"text": "house" if i % 10 < 7 else "h?use", "confidence": 0.9} for i in range(60)]
    read, written, out = (tmp_path / name for name in ("read.json", "true.txt", "trust.json"))
    read.write_text(json.dumps(words))
    written.write_text(" ".join(["house"] * 60))
    assert main(["correct", str(read), "--fit", str(written), "--out", str(out)]) == 0
    found = re.search(r"a stated 90% (\d+\.\d)%", capsys.readouterr().out)
    assert found and float(found[1]) == pytest.approx(94, abs=1)
    assert main(["correct", str(read), "--trust", str(out), *QUICK, "--to", "text"]) == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["nowhere.txt"], "file not found: nowhere.txt"),
        (["page.txt", "--threshold", "1.5"], "threshold"),
        (["page.txt", "--gap", "ab"], "--gap must be one character"),
        (["page.txt", "other.txt"], "several files need --out"),
        (["page.txt", "page.txt", "--out", "d"], "several input files have the name"),
        (["page.txt", "--fit", "page.txt"], "--fit needs exactly one input file"),
        (["page.txt", "--trust", "none.json", *QUICK], "no fitted confidence at none.json"),
        (["page.txt", "--model", "text8-tiny-mdlm"], "cannot correct text"),
        (["page.txt", "--model", "nowhere"], "no model 'nowhere'"),
        (["binary", *QUICK], "binary is not text"),
        (["latin", *QUICK], "neither UTF-8 nor UTF-16"),
        (["page.txt", "--format", "words", *QUICK], "not JSON"),
        (["page.txt", "--fit", "page.txt", "--out", "t.json"], "at least 200 characters"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    message: str,
    damaged: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(damaged.parent)
    Path("other.txt").write_text("a")
    Path("binary").write_bytes(b"\0\1\2")
    Path("latin").write_bytes(b"caf\xe9 au lait")
    assert main(["correct", *arguments]) == 1
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
