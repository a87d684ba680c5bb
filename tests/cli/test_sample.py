from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dsl.checkpoints import loading as loading
from dsl.cli.main import main
from dsl.cli.options import DEFAULT_MODEL
from dsl.generation.samples import Sample, Store, read


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


LETTERS = ("--model", "text8-tiny")


def test_texts_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    job = ("-n", "3", "--length", "40", "--sampler", "remdm-loop@16", "--seed", "1", *LETTERS)
    text = run(capsys, "sample", *job)
    assert [len(line) for line in text.splitlines()] == [40] * 3
    filled = run(capsys, "infill", "the capital of [12] is london", *LETTERS)
    assert re.fullmatch(r"the capital of [a-z ]{12} is london\n", filled)
    assert DEFAULT_MODEL == loading.DEFAULT_MODEL


def test_texts_that_may_have_several_lines_are_separated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = ("sample", "--length", "8", "--sampler", "mdlm@2", "--batch-size", "2")
    texts = json.loads(run(capsys, *job, "-n", "3", "--json"))["samples"]
    assert run(capsys, *job, "-n", "3") == "\n---\n".join(texts) + "\n"
    assert run(capsys, *job) == texts[0] + "\n"
    gaps = tmp_path / "gaps.txt"
    gaps.write_text("The [1] cat.\nThe [1] dog.\n")
    first, line, second = run(capsys, "infill", "--file", str(gaps)).splitlines()
    assert (first[-4:], line, second[-4:]) == ("cat.", "---", "dog.")


@pytest.mark.parametrize("n", [1, 2])
def test_numbers_agree_with_their_nouns(
    n: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ending = "" if n == 1 else "s"
    job = ("sample", "-n", str(n), "--model", "oracle:two-bit", "--out", str(tmp_path / "s.jsonl"))
    assert main(job) == 0
    assert capsys.readouterr().err.startswith(f"{n} sequence{ending} in ")
    read = tmp_path / "read.txt"
    read.write_text(" ".join(["united {stetes|0.5}"] * n))
    job = ("correct", str(read), "--model", "text8-tiny", "--out", str(tmp_path / "out.txt"))
    assert main(job) == 0
    assert f": {n} change{ending} in " in capsys.readouterr().err
    read.write_text("AB\n" * n)
    shown = run(capsys, "likelihood", "oracle:cyclic-2", str(read), "--only", "roar")
    assert f"{n} block{ending} of 2 tokens, {2 * n} tokens scored" in shown


def test_prompt_and_suffix(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "sample", "-n", "2", "--length", "9", "--prompt", "abc", "--suffix", "fe")
    texts = text.removesuffix("\n").split("\n---\n")
    assert all(text.startswith("abc") and text.endswith("fe") for text in texts)


def test_the_run_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(
        run(
            capsys, "sample", "-n", "4", "--model", "oracle:cyclic-7", "--sampler", "roar", "--json"
        )
    )
    assert report["n"] == 4 and len(report["samples"]) == 4
    assert report["nfe_mean"] == 7 and report["nfe_stderr"] == 0
    assert report["sampler"]["kind"] == "Reveal"
    assert report["command"].startswith("dsl sample -n 4")


def test_a_job_is_taken_up_where_it_stopped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out, whole = str(tmp_path / "s.jsonl"), str(tmp_path / "whole.jsonl")
    job = ("sample", "--model", "oracle:markov", "--sampler", "mdlm@8", "--batch-size", "2")
    run(capsys, *job, "-n", "7", "--out", whole)
    run(capsys, *job, "-n", "3", "--out", out)
    with Path(out).open("a") as file:
        file.write('{"index": 3, "text": "tor')  # killed while writing
    run(capsys, *job, "-n", "7", "--out", out)
    ours, theirs = ([(s.index, s.text, s.nfe) for s in read(Path(p))[1]] for p in (out, whole))
    assert ours == theirs
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.jsonl", "whole.jsonl"]


def test_a_kill_at_any_byte_loses_nothing_that_was_whole(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Cut the part of an interrupted process anywhere, even within its first line."""
    out = tmp_path / "s[1].jsonl"  # a name that a pattern would misread
    job = ("sample", "--model", "oracle:cyclic-7", "--sampler", "roar", "--out", str(out))
    run(capsys, *job, "-n", "4")
    whole = out.read_bytes().replace(b"BCDEFGA", "BCDEFGÄ".encode())
    lines = whole.split(b"\n")
    begins = [0, 5, len(lines[0]), len(lines[0]) + 1, len(whole) - 20, len(whole)]
    for cut in [*begins, whole.find("Ä".encode()) + 1]:
        out.unlink(missing_ok=True)
        (tmp_path / "s[1].jsonl.0-of-2").write_bytes(whole[:cut])
        kept = max(0, whole[:cut].count(b"\n") - 1)
        report = json.loads(run(capsys, *job, "-n", "4", "--json"))
        assert report["drawn_now"] == 4 - kept, cut
        assert [p.name for p in tmp_path.iterdir()] == ["s[1].jsonl"]


def test_a_failing_rank_leaves_the_others_parts_alone(tmp_path: Path) -> None:
    about = {"model": "m", "seed": 0}
    sample = Sample(1, "a", [0], 1, 0.0)
    other = Store.open(tmp_path / "s.jsonl", about, rank=1, ranks=2)
    with other:
        other.add([sample])
        with (
            pytest.raises(RuntimeError),
            Store.open(tmp_path / "s.jsonl", about, rank=0, ranks=2),
        ):
            raise RuntimeError("rank 0 fails")
        other.add([replace(sample, index=3)])
    assert Store.open(tmp_path / "s.jsonl", about).done == {1, 3}


def test_another_jobs_file_is_not_touched(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "s.jsonl"
    toy = ("--model", "oracle:cyclic-7")
    run(capsys, "sample", *toy, "--out", str(out))
    before = out.read_bytes()
    error = fails(capsys, "sample", *toy, "--out", str(out), "--seed", "1", "--sampler", "roar")
    assert "holds another request: its sampler, seed differ" in error
    assert out.read_bytes() == before
    run(capsys, "sample", *toy, "--out", str(out), "--seed", "1", "--overwrite")
    assert read(out)[0]["seed"] == 1
    out.write_text("not json\n")
    assert "line 1, is not JSON" in fails(capsys, "sample", *toy, "--out", str(out))


def test_traces_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    job = ("sample", "-n", "3", "--model", "text8-tiny", "--length", "16", "--sampler", "mdlm@4")
    plain = run(capsys, *job)
    traced = run(capsys, *job, "--trace", str(path), "--batch-size", "2")
    assert traced == plain
    first, *records = [json.loads(line) for line in path.read_text().splitlines()]
    assert first["about"]["model"] == "text8-tiny"
    assert {(r["index"], r["step"]) for r in records} == {
        (i, k) for i in range(3) for k in range(6)
    }
    assert all("entropy" in record for record in records)


def test_a_trace_survives_interruptions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A killed run leaves fewer samples than traces, and half a line. Resuming makes both whole."""
    out, trace = tmp_path / "samples.jsonl", tmp_path / "trace.jsonl"
    job = ("sample", "-n", "4", "--model", "oracle:cyclic-7", "--sampler", "mdlm@4")
    job = (*job, "--batch-size", "1", "--out", str(out), "--trace", str(trace))
    run(capsys, *job)
    samples, steps = read(out), trace.read_text().splitlines()
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:3]))  # two samples
    kept = [line for line in steps if '"index": 3' not in line]
    trace.write_text("\n".join(kept) + "\n" + steps[-1][:20])  # three traces and a half
    run(capsys, *job)
    tokens = [sample.tokens for sample in read(out)[1]]
    assert tokens == [sample.tokens for sample in samples[1]]
    again = [json.loads(line) for line in trace.read_text().splitlines()]
    records = [json.loads(line) for line in steps[1:]]
    assert sorted(again[1:], key=lambda r: (r["index"], r["step"])) == sorted(
        records, key=lambda r: (r["index"], r["step"])
    )


@pytest.mark.parametrize("content", ["my thesis\n", "my thesis", '{"index": 0}\n', "[]\n", "5\n"])
def test_a_trace_replaces_no_other_file(
    content: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(content)
    job = ("sample", "--model", "oracle:cyclic-7", "--sampler", "mdlm@4", "--trace", str(trace))
    assert "exists and is not a trace" in fails(capsys, *job)
    assert trace.read_text() == content
    run(capsys, *job, "--overwrite")
    before = trace.read_bytes()
    assert "the trace of another request: its seed differs" in fails(capsys, *job, "--seed", "1")
    assert trace.read_bytes() == before
    run(capsys, *job)  # the same request writes the same trace
    assert json.loads(trace.read_text().splitlines()[-1]) == json.loads(before.splitlines()[-1])
    assert "must be two files" in fails(capsys, *job, "--out", str(trace))


def test_a_full_specification(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = tmp_path / "path.yaml"
    spec.write_text(
        "kind: Ancestral\nnum_steps: 8\nremask: {kind: Cap, eta: 0.3}\ndraw: {top_p: 0.9}\n"
    )
    job = ("sample", "-n", "3", "--length", "16", "--sampler")
    named = run(capsys, *job, "remdm-cap@8:eta=0.3,top_p=0.9")
    assert run(capsys, *job, str(spec)) == named
    spec.write_text("kind: Ancestral\nsteps: 8\n")
    assert "'Ancestral': " in fails(capsys, "sample", "--sampler", str(spec))
    spec.write_text("kind: [")
    assert "not valid YAML" in fails(capsys, "sample", "--sampler", str(spec))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["sample", "--sampler", "mdml@8"], "unknown sampler 'mdml'"),
        (["sample", "--sampler", "mdlm@8:top_p=0"], "top_p must lie in (0, 1]"),
        (
            ["sample", "--model", "nowhere"],
            "no model 'nowhere': expected a bundled one (",
        ),
        (["sample", "--model", "oracle:cyclic-7", "--length", "8"], "needs length 7, got 8"),
        (
            ["sample", "--length", "3", "--prompt", "abcd", *LETTERS],
            "the prompt has 4 tokens, the sequence only 3",
        ),
        (["sample", "--prompt", "Z", *LETTERS], "outside the model's vocabulary: 'Z'"),
        (["infill", "abc"], "has no gap"),
        (["infill", "abc[0]"], "a gap has 1 to 1,000,000 tokens, got [0]"),
        (
            ["infill", "ab[ten]", *LETTERS],
            "a gap is written as its length, such as [12]; got [ten]",
        ),
        (["sample", "-n", "0"], "n must be at least 1, got 0"),
        (["sample", "--sampler", "nowhere.yaml"], "nowhere.yaml"),
        (["sample", "--length", "0"], "length must be at least 1, got 0"),
        (["sample", "--device", "abacus"], "device 'abacus' cannot be used"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert message in fails(capsys, *arguments)


@pytest.mark.slow
def test_processes_share_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes under torchrun write the file that one writes."""
    job = [
        "sample",
        "-n",
        "7",
        "--length",
        "16",
        "--sampler",
        "mdlm@6",
        "--batch-size",
        "2",
        "--seed",
        "4",
        "--out",
    ]
    alone, shared = tmp_path / "alone.jsonl", tmp_path / "shared.jsonl"
    run(capsys, *job, str(alone))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launch, "-m", "dsl", *job, str(shared)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    ours, theirs = ([(s.index, s.text, s.nfe) for s in read(p)[1]] for p in (shared, alone))
    assert ours == theirs
    assert sorted(p.name for p in tmp_path.iterdir()) == ["alone.jsonl", "shared.jsonl"]
