"""Every input that once gave a traceback, a hang or a loss: one line, a status, nothing lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch

import dsl
from dsl._util import config as strict
from dsl._util.files import parse_json, require_place
from dsl.checkpoints.loading import BUNDLED
from dsl.cli import options
from dsl.cli.main import VERBS, main, run
from dsl.core.path import Tabulated
from dsl.likelihoods.estimate import Effort
from dsl.models.config import ModelConfig
from dsl.samplers.draw import Draw
from dsl.samplers.edm import Edm
from dsl.samplers.localize import Localize
from dsl.samplers.specification import from_data
from dsl.training import recipe as recipes

TOY = "oracle:cyclic-7"
HUGE = 10**23
BOMB = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must fail with one line; return the line."""
    assert main(list(arguments)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("\n") and captured.err.count("\n") == 1
    assert len(captured.err) < 700
    return captured.err


class TestRecipes:
    @pytest.mark.parametrize(
        "change, message",
        [
            ("trainer.steps=[", "is not valid YAML"),
            ("trainer.micro_batch=0", "micro_batch must be at least 1, got 0"),
            ("data.validation=0", "validation must be at least 1, got 0"),
            ("trainer.batch=1000000000", "batch must be at most 1,000,000"),
            (f"trainer.steps={HUGE}", "expected an int of 64 bits"),
            ("trainer.steps=&a [*a]", "aliases of lists and mappings"),
            (BOMB.replace("a:", "model=a:", 1), "aliases of lists and mappings"),
            ("trainer.steps=!!int ''", "type tags such as"),
            ("model={a: 1, a: 2}", "duplicate key 'a'"),
            ("trainer.steps=" + "[" * 40_000, "nested too deeply"),
            ("model=[" + "a," * 40_000 + "]", "80,002 characters, more than 50,000"),
            ("optimizer.lr=.nan", "expected a finite number"),
            ("optimizer.beta1=5", "beta1 and beta2 in [0, 1)"),
            ("optimizer.eps=0", "eps > 0"),
            ("optimizer.weight_decay=-1", "weight_decay >= 0"),
            ("optimizer.final=-5", "final in [0, 1]"),
            ("objective={kind: []}", "objective must be one of"),
            ("model=5", "expected a mapping"),
            ("x" * 10_000, "key=value"),
            ("a\nb=5", "unknown key 'a\\nb'"),
        ],
    )
    def test_a_change(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, message: str
    ) -> None:
        out = tmp_path / "run"
        assert message in fails(capsys, "train", "cyclic", "--out", str(out), "--set", change)
        assert not out.exists()

    @pytest.mark.parametrize(
        "change, message",
        [
            ("model.n_blocks=1000000000", "n_blocks must be at most 1,000"),
            ("model.hidden_dim=1000000000", "more than 1e+11 weights"),
            ("model.snr_max=1e200", "at most 1e6"),
            ("model.dropout=.nan", "expected a finite number"),
        ],
    )
    def test_a_shape(self, change: str, message: str) -> None:
        recipe = recipes.read(recipes.find("cyclic"), [change])
        with pytest.raises(ValueError, match=message.replace("+", r"\+")):
            recipe.objective.family.shape(7, 7, recipe.model)

    @pytest.mark.parametrize("content", [BOMB, "&a {data: *a}", "[" * 40_000, "", "5"])
    def test_a_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
        path = tmp_path / "recipe.yaml"
        path.write_text(content)
        assert str(path) in fails(capsys, "train", str(path), "--out", str(tmp_path / "run"))


class TestSamplers:
    @pytest.mark.parametrize(
        "content, message",
        [
            ("kind: Chain\nsamplers: 5\n", "got 5"),
            ("&a\nkind: Chain\nsamplers: [*a]\n", "aliases of lists and mappings"),
            (BOMB, "aliases of lists and mappings"),
            ("kind: []\n", "must be a mapping with a 'kind'"),
            ("kind: Ancestral\nnum_steps: 8\nremask: 5\n", "is one of Never"),
            ("kind: Ancestral\nnum_steps: 8\nremask: {kind: []}\n", "is one of Never"),
            ("kind: Ancestral\nnum_steps: 8\nremask: {kind: Nope}\n", "got 'Nope'"),
            ("kind: Ancestral\nnum_steps: 999999999999\n", "at most 1,000,000 steps"),
            ("kind: Edm\nnum_steps: 4\nrho: 0\n", "rho must lie in"),
            ("kind: Localize\nnum_steps: 4\nsnr_max: 1e200\n", "snr_max <= 1e6"),
            ("kind: Localize\nnum_steps: 4\n", "must end with a Commit"),
        ],
    )
    def test_a_file(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
    ) -> None:
        path = tmp_path / "sampler.yaml"
        path.write_text(content)
        assert message in fails(capsys, "sample", "--model", TOY, "--sampler", str(path))

    @pytest.mark.parametrize(
        "name",
        [
            f"mdlm@{HUGE}", "mdlm@8:temperature=inf", "mdlm@8:temperature=nan", "edm@4:rho=0",
            "mdlm@8:crossing=" + "1" * 10_000, "mdlm@8:refresh_unmasked=" + "1" * 10_000,
            "edm@4:churn=1e300,churn_means=factor", "localize@4:noise=1e300", "x" * 10_000,
        ],
    )  # fmt: skip
    def test_a_name(self, capsys: pytest.CaptureFixture[str], name: str) -> None:
        fails(capsys, "sample", "--model", TOY, "--sampler", name)

    def test_a_tiny_temperature_takes_the_most_likely_token(self) -> None:
        """It once overflowed, and every token was the first of the vocabulary."""
        logits = torch.tensor([[0.0, 1e-3, 5.0], [2.0, -40.0, 1.0]])
        for temperature in (1e-310, 1e-30, 0.0):
            p = Draw(temperature=temperature).probabilities(logits)
            assert p.tolist() == [[0, 0, 1], [1, 0, 0]]

    @pytest.mark.parametrize(
        "build",
        [
            lambda: Draw(temperature=float("inf")),
            lambda: Edm(4, rho=0.0),
            lambda: Edm(4, sigma_max=float("inf")),
            lambda: Edm(4, churn=float("nan")),
            lambda: Localize(4, power=0.0),
            lambda: Localize(HUGE),
            lambda: from_data({"kind": "Ancestral", "num_steps": HUGE}),
            lambda: dsl.generate(TOY, n=HUGE),
            lambda: dsl.generate(TOY, sampler=Localize(4)),
            lambda: dsl.infill("a[999999999]"),
            lambda: dsl.likelihood(TOY, "ABCDEFG", budget=HUGE),
            lambda: Effort(HUGE),
            lambda: ModelConfig(5, n_blocks=10**9),
            lambda: ModelConfig(5, model_length=2**40),
        ],
    )
    def test_python_is_told_the_same(self, build: Any) -> None:
        with pytest.raises(ValueError) as error:
            build()
        assert "\n" not in str(error.value) and len(str(error.value)) < 600


class TestGaps:
    @pytest.mark.parametrize(
        "text", ["a[999999999]", "a[" + "9" * 5000 + "]", "[128]" * 20_000, "[" * 100_000, "[٣]"]
    )
    def test_a_text(self, capsys: pytest.CaptureFixture[str], text: str) -> None:
        fails(capsys, "infill", text)

    @pytest.mark.parametrize("verb, flag", [("infill", "--file"), ("sample", "--prompts")])
    def test_a_line_of_ten_megabytes(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, flag: str
    ) -> None:
        """It is refused by its length, before it is encoded."""
        path = tmp_path / "long.txt"
        path.write_text("a b " * 2_500_000 + "[3]")
        message = fails(capsys, verb, flag, str(path), "--model", "text8-tiny")
        assert "at most 128 tokens, got 10,000,0" in message


class TestConfigs:
    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        for name in ("model.safetensors", "tokenizer.json"):
            (tmp_path / name).symlink_to(BUNDLED / "text8-tiny" / name)
        return tmp_path

    @pytest.mark.parametrize(
        "change",
        [
            {"n_blocks": 10**9}, {"n_blocks": 1e9}, {"kind": []}, {"kind": {}}, {"kind": "x" * 999},
            {"hidden_dim": 10**9}, {"hidden_dim": 10**30}, {"cond_dim": 10**8}, {"n_heads": "6"},
            {"cond_dim": 2**31 - 1}, {"codebook_dim": 10**8}, {"vocab_size": 10**8}, {"n_heads": 0},
            {"dropout": float("nan")}, {"dropout": {"a": {"b": []}}}, {"model_length": 2**31 - 1},
            {"backbone": []}, {"snr_max": 1e200}, {"beta": 1e200}, {"x" * 999: 1}, {"values": 0},
        ],
    )  # fmt: skip
    def test_a_value(
        self, model: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
    ) -> None:
        valid = json.loads((BUNDLED / "text8-tiny" / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**valid, **change}))
        fails(capsys, "sample", "--model", str(model), "--length", "8", "--sampler", "mdlm@2")

    @pytest.mark.parametrize(
        "content", ["", "5", "[" * 100_000, '{"a":' * 50_000, '{"kind": 1, "kind": 2}', "\0"]
    )
    def test_a_file(self, model: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
        (model / "config.json").write_text(content)
        fails(capsys, "sample", "--model", str(model))

    def test_a_key_that_comes_twice_among_many_is_found_at_once(self) -> None:
        many = ",".join(f'"k{i}": 1' for i in range(100_000))
        with pytest.raises(ValueError, match="duplicate key 'k99999'"):
            parse_json(f'{{{many}, "k99999": 2}}'.encode(), "it", unique=True)


ABOUT = {"model": TOY, "length": 7}
SAMPLE = {"index": 0, "text": "ABCDEFG", "tokens": [*range(7)], "nfe": 7, "seconds": 0.5}


class TestSamples:
    @pytest.mark.parametrize(
        "about, change",
        [
            (ABOUT, {"index": -1}), (ABOUT, {"index": 0.5}), (ABOUT, {"index": True}),
            (ABOUT, {"index": HUGE}), (ABOUT, {"text": 5}), (ABOUT, {"tokens": [-1]}),
            (ABOUT, {"tokens": [10**10]}), (ABOUT, {"tokens": 5}), (ABOUT, {"nfe": "a"}),
            (ABOUT, {"seconds": float("nan")}), (ABOUT, {"x": 1}), ({}, {}), (5, {}),
            ({"model": 5}, {}), ({"model": TOY, "length": "a"}, {}),
            ({"model": "oracle:markov", "length": 10**9}, {}),
        ],
    )  # fmt: skip
    def test_a_file(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        about: Any,
        change: dict[str, Any],
    ) -> None:
        self.refused(tmp_path, capsys, [{"about": about}, {**SAMPLE, **change}])

    def test_an_index_that_comes_twice(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.refused(tmp_path, capsys, [{"about": ABOUT}, SAMPLE, SAMPLE])

    def refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[Any]) -> None:
        """Refuse to measure the file and to go on with it, and leave it as it is."""
        path = tmp_path / "samples.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        before = path.read_bytes()
        fails(capsys, "evaluate", str(path), *JUDGED, "--cache", str(tmp_path / "cache"))
        fails(capsys, "sample", "--model", TOY, "--sampler", "roar", "--out", str(path))
        assert path.read_bytes() == before


JUDGED = ["--reference", "cyclic-7", "--features", "none", "--judge", "none"]


def numbers() -> Iterator[tuple[str, str, bool]]:
    """List the numeric options of all verbs, and whether they are whole numbers."""
    for verb in (*VERBS, "repair", "divergence", "toy"):
        if verb == "reproduce":
            continue
        kind = import_module(f"dsl.cli.{verb}").Options
        hints = get_type_hints(kind)
        for field in fields(kind):
            inner = {hints[field.name], *get_args(hints[field.name])}
            if inner & {int, float}:
                yield verb, field.name, int in inner


NEEDED: dict[str, dict[str, Any]] = {
    "likelihood": {"model": TOY, "corpus": "x.txt"},
    "calibrate": {"model": TOY, "corpus": "x.txt"},
    "repair": {"model": TOY, "corpus": "x.txt"},
    "divergence": {"model": TOY, "corpus": "x.txt"},
    "evaluate": {"samples": Path("x.jsonl"), "reference": "cyclic-7"},
    "compare": {"cells": (), "out": Path("out"), "reference": "cyclic-7"},
    "convert": {"system": "mdlm", "source": "x", "out": Path("out")},
    "infill": {"text": "a[3]"},
}
CHECKED_LATER = {("likelihood", "budget")}
"""By `Effort`, before any work."""


class TestNumbers:
    @pytest.mark.parametrize("verb, name, whole", list(numbers()))
    def test_an_impossible_number_is_refused_with_its_name(
        self, verb: str, name: str, whole: bool
    ) -> None:
        kind = import_module(f"dsl.cli.{verb}").Options
        valid = kind(**NEEDED.get(verb, {}))
        assert isinstance(valid, options.Checked)
        valid.check()
        impossible = [-1, HUGE] if whole else [-1.0, float("nan"), float("inf"), 1e23]
        for value in () if (verb, name) in CHECKED_LATER else impossible:
            given = (value,) if isinstance(getattr(valid, name), tuple) else value
            flag = "-n" if name == "n" else f"--{name.replace('_', '-')}"
            with pytest.raises(ValueError, match=f"^({flag}|{name}) must .* got ") as error:
                replace(valid, **{name: given}).check()
            assert "\n" not in str(error.value)

    @pytest.mark.parametrize(
        "arguments",
        [
            ("sample", "--model", TOY, "-n", str(HUGE)),
            ("sample", "--model", TOY, "--seed", "-1"),
            ("infill", "A[6]", "--model", TOY, "--batch-size", "0"),
            ("likelihood", TOY, "ABC DEFG", "--budget", str(HUGE)),
            ("likelihood", TOY, "ABC DEFG", "--cutoff", "nan"),
            ("calibrate", TOY, "x.txt", "--bins", str(HUGE)),
            ("compare", f"{TOY}/mdlm@4", "--out", "x", *JUDGED, "--workers", str(HUGE)),
            ("convert", "float16", "text8-tiny", "x", "--codebook-dim", "0"),
            ("reproduce", "toy", "--draws", str(HUGE)),
        ],
    )
    def test_the_command_says_so(
        self, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
    ) -> None:
        fails(capsys, *arguments)

    @pytest.mark.parametrize("value", ["nan", "inf", "1e-310", "many"])
    def test_what_is_no_whole_number_is_no_traceback(
        self, capsys: pytest.CaptureFixture[str], value: str
    ) -> None:
        with pytest.raises(SystemExit) as stop:
            main(["reproduce", "toy", "--draws", value])
        assert stop.value.code == 2 and f"'{value}'" in capsys.readouterr().err


class TestPlaces:
    """What cannot be written is refused before any work."""

    @pytest.mark.parametrize(
        "arguments",
        [
            ("demo", "--out"),
            ("sample", "--out"),
            ("sample", "--trace"),
            ("infill", "a[3]", "--out"),
            ("evaluate", "samples.jsonl", *JUDGED, "--out"),
            ("compare", "text8-tiny/mdlm@4", *JUDGED, "--out"),
            ("reproduce", "figure", "geometry", "text8-tiny", "--out"),
            ("train", "cyclic", "--out"),
            ("convert", "float16", "text8-tiny"),
            ("convert", "mdlm", "text8-tiny-mdlm"),
            ("export", "text8-tiny"),
        ],
    )
    def test_a_file_is_no_directory(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        arguments: tuple[str, ...],
    ) -> None:
        def works(*_: Any) -> None:
            raise AssertionError("a model was read for nothing")

        monkeypatch.setattr("dsl.families.registry.read", works)
        monkeypatch.setattr("dsl.models.folder.load_tensors", works)
        file = tmp_path / "file"
        file.write_text("kept")
        fails(capsys, *arguments, str(file / "inside"))
        assert file.read_text() == "kept" and list(tmp_path.iterdir()) == [file]

    def test_a_place_is_tried_without_a_trace(self, tmp_path: Path) -> None:
        require_place(tmp_path / "a" / "b.json")
        require_place(tmp_path / "a", directory=True)
        assert list(tmp_path.iterdir()) == []
        for path in (tmp_path, Path(os.devnull)):
            with pytest.raises(FileExistsError, match="is not a file"):
                require_place(path)

    @pytest.mark.parametrize(
        "change, message",
        [
            (("--reference", "nope"), "unknown corpus 'nope'"),
            (("--split", "nope"), "has no split 'nope'"),
            (("--features", "nope"), "no model directory at 'nope'"),
        ],
    )
    def test_a_comparison_with_nothing_is_refused_at_once(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        change: tuple[str, ...],
        message: str,
    ) -> None:
        out = tmp_path / "out"
        job = ("compare", f"{TOY}/mdlm@4", *JUDGED, "--out", str(out))
        assert message in fails(capsys, *job, *change)
        assert not out.exists()

    @pytest.mark.parametrize("cell", ["nope/mdlm@4", "oracle:nope/mdlm@4", f"{TOY}/nope", TOY])
    def test_a_cell_of_nothing_is_refused_at_once(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], cell: str
    ) -> None:
        out = tmp_path / "out"
        fails(capsys, "compare", cell, *JUDGED, "--out", str(out))
        assert not out.exists()


class TestFigures:
    @pytest.mark.parametrize(
        "content",
        ["", "5", "null", "[" * 100_000, '{"rows": 5, "held_out": {}}', '{"rows": []}',
         '{"rows": [5], "held_out": {}}', '{"rows": [{}], "held_out": {"a": 5}}'],
    )  # fmt: skip
    @pytest.mark.parametrize("what", ["tradeoff", "paths"])
    def test_a_source(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, content: str
    ) -> None:
        path, out = tmp_path / "source.json", tmp_path / "out.svg"
        path.write_text(content)
        assert str(path) in fails(capsys, "reproduce", "figure", what, str(path), "--out", str(out))
        assert not out.exists()


class TestContours:
    @pytest.mark.parametrize(
        "content",
        [
            "", "[]", "[" * 100_000, '{"times": "ab", "snr": 5}', '{"times": [], "snr": []}',
            '{"times": [0, 1], "snr": [[0, 0], [1e300, 1]]}',
            '{"times": [0, 1e-310, 1], "snr": [[0, 0], [1, 1], [2, 2]]}',
            '{"times": [0, 1], "snr": [[0, 0], [1, "a"]]}',
            '{"times": [0, NaN], "snr": [[0, 0], [1, 1]]}',
        ],
    )  # fmt: skip
    def test_a_table(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "table.json"
        path.write_text(content)
        with pytest.raises(ValueError) as error:
            Tabulated.read(path, 2)
        assert "\n" not in str(error.value) and len(str(error.value)) < 600


class TestDevices:
    @pytest.mark.parametrize("device", ["meta", "mps:9", "abacus", ""])
    def test_a_device(self, capsys: pytest.CaptureFixture[str], device: str) -> None:
        assert "cannot be used" in fails(capsys, "sample", "--model", TOY, "--device", device)


class TestMessages:
    def test_a_message_is_one_line_of_reasonable_length(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: object) -> None:
            raise OSError("one\n  two " + "x" * 10_000)

        monkeypatch.setattr("dsl.cli.demo.main", fail)
        message = fails(capsys, "demo")
        assert message.startswith("dsl demo: one two xxx") and message.endswith("x…\n")

    def test_torch_says_in_its_own_way_that_memory_is_short(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: object) -> None:
            torch.empty(2**60)

        monkeypatch.setattr("dsl.cli.demo.main", fail)
        assert "not enough memory" in fails(capsys, "demo")

    def test_a_fault_of_ours_is_not_hidden(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(_: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr("dsl.cli.demo.main", fail)
        with pytest.raises(RuntimeError, match="a bug"):
            run("demo", [])

    def test_yaml_that_names_a_type_or_a_key_twice(self) -> None:
        for text in ("!!bool x", "!!timestamp 5", "!!int ''", "a: 1\na: 2", "- " * 20_000):
            with pytest.raises(ValueError, match=r"^it is not valid YAML"):
                strict.parse_yaml(text, "it")


def peak(*jobs: list[str]) -> list[int]:
    """Run commands one after the other in a process; return its peak memory after each."""
    code = (
        "import json, resource, sys\nfrom dsl.cli.main import main\n"
        "for job in json.loads(sys.argv[1]):\n"
        "    assert main(job) == 0\n"
        "    print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", code, json.dumps(jobs)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    scale = 1 if sys.platform == "darwin" else 1024
    lines = [line.split() for line in done.stderr.splitlines() if line.startswith("peak ")]
    return [int(words[1]) * scale for words in lines]


class TestLongLines:
    """The library that encodes needs 400 bytes for a character of what it is given at once."""

    @pytest.mark.parametrize("verb", ["likelihood", "train"])
    @pytest.mark.slow
    @pytest.mark.parametrize("megabytes", [2, 10])
    def test_memory_is_little(self, tmp_path: Path, verb: str, megabytes: int) -> None:
        jobs = []
        for name, size in (("short", 20_000), ("long", megabytes * 10**6)):
            path = tmp_path / f"{name}.txt"
            path.write_text(("the history of the united states " * (size // 30))[:size])
            score = ["likelihood", "text8-tiny", str(path), "--limit", "2", "--budget", "4"]
            train = ["train", "text8-tiny", "--smoke", "--out", str(tmp_path / name)]
            train += ["--set", f"data.corpus={path}", "--cache", str(tmp_path / "cache")]
            jobs.append(score if verb == "likelihood" else train)
        before, after = peak(*jobs)
        assert after < 1.5 * 2**30
        assert after - before < 100 * megabytes * 10**6
