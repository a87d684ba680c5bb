"""A samples file belongs to one command at a time, and says in one line what is wrong with it."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dsl.cli.main import main
from dsl.generation.samples import Sample, Store, read

ABOUT = {"about": {"model": "m", "seed": 0}}
GOOD = asdict(Sample(0, "ab", [0, 1], 3, 0.5))


def written(path: Path, *lines: Any) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join([*texts, ""]))
    return path


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"text": 5}, "'text' must be text, got 5"),
        ({"tokens": "x"}, "'tokens' must be a list of token ids, got \"x\""),
        ({"tokens": [0, 1.0]}, "'tokens' must be"),
        ({"tokens": [0, True]}, "'tokens' must be"),
        ({"tokens": [2**70]}, "'tokens' must be"),
        ({"tokens": [-1]}, "'tokens' must be"),
        ({"nfe": -1}, "'nfe' must be a whole number from 0, got -1"),
        ({"seconds": float("nan")}, "'seconds' must be a number from 0, got NaN"),
        ({"seconds": float("inf")}, "'seconds' must be"),
        ({"seconds": 10**400}, "'seconds' must be"),
        ({"index": -1}, "'index' must be"),
        ({"index": None}, "'index' must be"),
        ({"index": 1}, "repeats the index 1 of an earlier line"),
        ({"extra": 1}, "expected the keys index, text, tokens, nfe, seconds"),
    ],
)
def test_a_line_that_is_no_sample_is_named(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    first = GOOD | {"index": 1}
    path = written(tmp_path / "s.jsonl", ABOUT, first, GOOD | change)
    with pytest.raises(ValueError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, line 3")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "line", ["5", "null", "[]", '"text"', "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000, "{}"]
)
@pytest.mark.parametrize("number", [1, 2])
def test_a_line_that_is_something_else_is_named(line: str, number: int, tmp_path: Path) -> None:
    path = written(tmp_path / "s.jsonl", *([ABOUT, line] if number == 2 else [line]))
    with pytest.raises(ValueError, match=f"line {number},") as caught:
        read(path)
    assert type(caught.value) is ValueError
    assert len(str(caught.value)) < 400 + len(str(path))


@pytest.mark.parametrize("about", [5, [], "m", None, [["model", "m"]]])
def test_a_job_is_described_by_names_and_values(about: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 1, must be"):
        read(written(tmp_path / "s.jsonl", {"about": about}))


def test_what_is_right_is_read(tmp_path: Path) -> None:
    again = GOOD | {"index": 7, "seconds": 0, "tokens": []}
    about, samples = read(written(tmp_path / "s.jsonl", ABOUT, again, GOOD))
    assert about == ABOUT["about"]
    assert [asdict(sample) for sample in samples] == [again, GOOD]


def test_a_store_holds_its_file_until_it_is_merged(tmp_path: Path) -> None:
    path = tmp_path / "new" / "s.jsonl"
    with Store.open(path, {"seed": 0}) as store:
        store.add([Sample(**GOOD)])
        with pytest.raises(ValueError, match="another process is at work in"):
            Store.open(path, {"seed": 0}, overwrite=True)
        assert Store.open(path, {"seed": 0}, rank=1, ranks=2).done == {0}
    store.merge()
    with pytest.raises(ValueError, match="holds another request"):
        Store.open(path, {"seed": 1})
    assert Store.open(path, {"seed": 0}).done == {0}, "a refusal lets go of the file"
    assert read(path)[1] == [Sample(**GOOD)]


def test_a_full_disk_is_named_and_what_was_whole_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.jsonl"
    store = Store.open(path, {"seed": 0})
    with pytest.raises(OSError, match=r"s\.jsonl could not be written \(No space"), store:
        store.add([Sample(**GOOD)])

        def full(_: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(store._file, "write", full)
        store.add([Sample(**GOOD | {"index": 1})])
    assert 0 in Store.open(path, {"seed": 0}).done


@pytest.mark.slow
def test_a_second_command_is_refused_and_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two real processes at one file: the first is stopped in its middle and goes on after it."""
    out, alone = tmp_path / "s.jsonl", tmp_path / "alone.jsonl"
    job = ["sample", "--model", "oracle:markov", "--length", "8", "--sampler", "mdlm@8"]
    job += ["--batch-size", "1", "-n", "150", "--out"]
    command = [sys.executable, "-m", "dsl", *job, str(out)]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    shard = tmp_path / "s.jsonl.0-of-1"
    while not (shard.exists() and shard.read_bytes().count(b"\n") > 2):
        assert first.poll() is None, first.communicate()[1]
        time.sleep(0.01)
    second = subprocess.run(command, capture_output=True, text=True)
    if first.poll() is None or second.returncode:
        assert second.returncode == 1
        assert second.stderr == f"dsl sample: another process is at work in {out}\n"
    assert first.wait(timeout=200) == 0
    assert main([*job, str(alone)]) == 0
    capsys.readouterr()
    ours, theirs = ([(s.index, s.text) for s in read(p)[1]] for p in (out, alone))
    assert ours == theirs
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.jsonl", "s.jsonl"]
