from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dsl
from dsl.checkpoints.loading import Model, load
from dsl.cli.likelihood import Options, beginning, described
from dsl.cli.main import main
from dsl.core import oracle
from dsl.core.streams import stream
from dsl.evaluation import source_of
from dsl.evaluation.scoring import score

LETTERS = "abcdef"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = oracle.markov(6, 8).sample(40, generator=stream(0)).tolist()
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join("".join(LETTERS[t] for t in row) for row in rows) + "\n")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["likelihood", *arguments, "--json"]) == 0
    result: dict[str, object] = json.loads(capsys.readouterr().out)
    return result


def test_every_number_is_there_and_right(capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
    result = run(capsys, "oracle:markov", str(corpus), "--limit", "24", "--budget", "200")
    rows = [[LETTERS.index(c) for c in line] for line in corpus.read_text().splitlines()[:24]]
    wanted = float(-oracle.markov(6, 8).log_prob(torch.tensor(rows)).mean()) / 8 / math.log(2)
    sections = {"roar": result["roar"], **result["path_integral"]}  # type: ignore[dict-item]
    assert set(sections) == {"roar", "shared", "sequential", "random-order"}
    for name, section in sections.items():
        # within 4 of the corpus's error, of which the estimator's own is a part
        assert abs(section["bits_per_token"] - wanted) < 4 * section["stderr"], name
        assert section["bits_per_character"] == pytest.approx(section["bits_per_token"])
    assert result["audit"]["z"] < 4.5  # type: ignore[index]
    assert result["cutoff_chosen_on"] == "16 blocks that are not scored"


def test_samples_files_and_tables_are_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    samples, table = tmp_path / "s.jsonl", tmp_path / "table.json"
    main(
        [
            "sample",
            "-n",
            "6",
            "--model",
            "oracle:cyclic-7",
            "--sampler",
            "roar",
            "--out",
            str(samples),
        ]
    )
    table.write_text(json.dumps({"times": [0, 0.5, 1], "snr": [[0] * 7, [5] * 7, [20] * 7]}))
    result = run(
        capsys,
        "oracle:cyclic-7",
        str(samples),
        "--table",
        str(table),
        "--cutoff",
        "20",
        "--budget",
        "128",
    )
    assert result["sequences"] == 6
    assert result["roar"]["nats_per_sequence"] == pytest.approx(math.log(7))  # type: ignore[index]
    tabulated = result["path_integral"]["tabulated"]  # type: ignore[index]
    assert abs(tabulated["nats_per_sequence"] - math.log(7)) < 1.0


def test_a_table_of_the_wrong_width_is_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, corpus: Path
) -> None:
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"times": [0, 1], "snr": [[0, 0], [9, 9]]}))
    assert main(["likelihood", "oracle:markov", str(corpus), "--table", str(table)]) == 1
    assert "must have 8 numbers for each of the 2" in capsys.readouterr().err


def test_more_processes_than_blocks() -> None:
    empty = score(load("oracle:markov"), torch.zeros(0, 8, dtype=torch.long), cutoff=9.0)
    assert not empty.blocks and empty.kinds["roar"] == "bound"


def test_cells_are_one_line_and_the_scored_blocks_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine[0].jsonl"
    texts = ["One\nday Tom ran.", "x" * 60]
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    quick = ("--only", "roar", "--budget", "4")
    assert main(["likelihood", "stories-tiny", str(path), *quick]) == 0
    out = capsys.readouterr().out
    assert "One⏎day Tom ran." in out and out.count("xxx… ") == 1
    assert sum("xxx" in line for line in out.splitlines()) == 1
    assert f" tokens scored: from the beginning of {path}\n" in out
    assert beginning("a\tb\r\nc") == "a⇥b␍⏎c"
    for corpus, where in (("cyclic-7", "spread evenly over the test split of cyclic-7"),
                          ("A BCDEFG", "the given text")):  # fmt: skip
        assert described(options(corpus), source_of(corpus)) == where


def options(corpus: str) -> Options:
    return Options(model="oracle:cyclic-7", corpus=corpus)


def test_the_table_for_people(capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
    assert main(["likelihood", "oracle:markov", str(corpus), "--limit", "2"]) == 0
    out = capsys.readouterr().out
    assert "random-order" in out and "Audit:" in out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--budget", "0"], "the budget must lie in 4 … 1,000,000"),
        (["--budget", "1" + "0" * 23], "the budget must lie in 4 … 1,000,000"),
        (["--length", "400"], "oracle:markov needs length 400, got 8"),
        (["--cutoff", "0"], "cut-off must be positive"),
        (["--table", "nowhere.json"], "nowhere.json"),
        (["--device", "cuda:7"], "device 'cuda:7' cannot be used"),
        (["--length", "0"], "--length must lie in 1 … 1,000,000, got 0"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], corpus: Path, arguments: list[str], message: str
) -> None:
    assert main(["likelihood", "oracle:markov", str(corpus), *arguments]) == 1
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "content, message",
    [
        ("abXYZcde\n", "outside the model's vocabulary: 'XYZ'"),
        ("abc\nabc\n", "oracle:markov needs length 8, got 3"),
        ("\n", "bad.txt contains no text"),
        ("", "bad.txt contains no text"),
    ],
)
def test_bad_corpora_are_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(content)
    assert main(["likelihood", "oracle:markov", str(path)]) == 1
    assert message in capsys.readouterr().err
    assert main(["likelihood", "oracle:markov", str(tmp_path / "none.txt")]) == 1
    assert "no corpus at" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content, message",
    [("{", "is not JSON"), ('{"txt": 1}', 'has no "text"'), ('{"text": 1}', 'has no "text"')],
)
def test_bad_json_lines_are_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    assert main(["likelihood", "oracle:markov", str(path)]) == 1
    assert message in capsys.readouterr().err


def test_python(corpus: Path) -> None:
    report = dsl.likelihood("oracle:cyclic-7", ["ABCDEFG", "CDEFGAB"], budget=128)
    alone = dsl.likelihood("oracle:cyclic-7", ["ABCDEFG", "CDEFGAB"], budget=128, only=["shared"])
    assert list(alone.kinds) == ["shared"] and "audit" not in alone.to_dict()
    assert alone.bits_per_token("shared").mean == report.bits_per_token("shared").mean
    with pytest.raises(ValueError, match="has no estimator"):
        dsl.likelihood("oracle:cyclic-7", ["ABCDEFG"], only=["rowr"])
    assert report.bits_per_token("roar").mean == pytest.approx(math.log2(7) / 7)
    assert report.characters == 14


def test_a_span_is_scored_given_the_rest() -> None:
    """-log P(s_3 s_4 | rest) of the chain, from its tables."""
    chain = oracle.markov(6, 8)
    tokens = chain.sample(1, generator=stream(3))
    text = "".join(LETTERS[t] for t in tokens[0].tolist())
    report = dsl.likelihood("oracle:markov", [text], span=(3, 5), budget=2000, cutoff=20.0)
    others = tokens.repeat(36, 1)
    others[:, 3:5] = torch.cartesian_prod(torch.arange(6), torch.arange(6))
    wanted = chain.log_prob(others).logsumexp(0) - chain.log_prob(tokens)[0]
    for name in report.kinds:
        found = report.reading(name)
        assert abs(float(found.nats - wanted)) < 5 * float(found.stderr) + 1e-6, name
        assert float(report.attributions(name)[0][:3].abs().sum()) < 0.02
        bits = report.bits_per_token(name).mean
        assert bits == pytest.approx(float(found.nats) / 2 / math.log(2)), "of two tokens"
    one, other = report.audit.between
    apart = abs(float(report.reading(one).nats - report.reading(other).nats))
    assert report.audit.spread == pytest.approx(apart / 2), "for each of the two tokens"
    assert report.characters == 2
    with pytest.raises(ValueError, match="must lie within 0 … 8, got 5 … 9"):
        dsl.likelihood("oracle:markov", [text], span=(5, 9))


def test_special_tokens_can_be_left_out_of_the_account() -> None:
    """A block of BOS, six letters and EOS: all bits on six characters, or the letters' bits."""
    plain = load("oracle:markov")
    assert plain.tokenizer is not None
    plain.tokenizer.add_special_tokens(["a", "f"])  # the chain's first and last letter
    model = Model("special", plain.denoiser, plain.tokenizer, 8, exact_length=True)
    assert model.specials == {0, 5}
    tokens = torch.tensor([[0, 1, 2, 3, 4, 1, 2, 5]])
    report = score(model, tokens, budget=32, cutoff=20.0)
    assert report.characters == 6
    bits = report.bits_per_token("roar").mean * 8
    assert report.bits_per_character("roar").mean == pytest.approx(bits / 6)
    letters = float(report.attributions("roar")[0][1:-1].sum()) / math.log(2)
    without = report.bits_per_character("roar", specials=False).mean
    assert without == pytest.approx(letters / 6)


@pytest.mark.slow
def test_processes_share_a_corpus(capsys: pytest.CaptureFixture[str], corpus: Path) -> None:
    job = ["oracle:markov", str(corpus), "--limit", "7", "--budget", "16"]
    alone = run(capsys, *job)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launch, "-m", "dsl", "likelihood", *job, "--json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    shared = json.loads(done.stdout)
    assert shared["roar"]["bits_per_token"] == pytest.approx(alone["roar"]["bits_per_token"])  # type: ignore[index]
    assert shared["audit"]["spread"] == pytest.approx(alone["audit"]["spread"])  # type: ignore[index]


def test_a_text_shorter_than_the_model_is_one_block() -> None:
    """A string is one text; its own length is the block's unless another is asked for."""
    text = "the cat sat on the mat"
    scores = [
        dsl.likelihood("text8-tiny", given, length=length, budget=4, cutoff=5.0, only=("roar",))
        for given, length in ((text, None), ([text], None), ([text], len(text)))
    ]
    assert [[len(block.tokens) for block in report.blocks] for report in scores] == [[22]] * 3
    assert len({report.bits_per_token("roar").mean for report in scores}) == 1
    with pytest.raises(ValueError, match="must not be empty"):
        dsl.likelihood("text8-tiny", [""])


TEXTS = ["the cat", "a much longer sentence about a cat that sat on a mat", "x"]


def test_every_text_is_scored_to_its_end() -> None:
    """Together or alone, short or long, cut into blocks or not: the same tokens are scored."""
    together = dsl.likelihood("text8-tiny", TEXTS, budget=8, only=("roar",))
    assert [report.scored for report in together.by_text()] == [len(text) for text in TEXTS]
    assert together.scored == sum(map(len, TEXTS)) == together.characters
    whole = float(together.reading("roar").nats.sum())
    parts = [float(report.reading("roar").nats.sum()) for report in together.by_text()]
    assert whole == pytest.approx(sum(parts))
    first = dsl.likelihood("text8-tiny", TEXTS[:1], budget=8, only=("roar",))
    assert float(first.reading("roar").nats.sum()) == pytest.approx(parts[0])
    cut = dsl.likelihood("text8-tiny", TEXTS, length=10, budget=8, only=("roar",))
    assert [len(block.tokens) for block in cut.blocks] == [7, 10, 10, 10, 10, 10, 2, 1]
    assert [block.text for block in cut.blocks] == [0, 1, 1, 1, 1, 1, 1, 2]


def test_sentences_and_lines_get_a_line_each(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    quick = ["--budget", "4", "--cutoff", "5", "--only", "roar"]
    assert main(["likelihood", "text8-tiny", TEXTS[1], *quick, "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert [text["text"] for text in alone["texts"]] == TEXTS[1:2]
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(TEXTS) + "\n")
    assert main(["likelihood", "text8-tiny", str(lines), *quick, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [text["text"] for text in found["texts"]] == TEXTS
    assert [text["tokens"] for text in found["texts"]] == [len(text) for text in TEXTS]
    assert main(["likelihood", "text8-tiny", str(lines), *quick]) == 0
    shown = capsys.readouterr().out
    assert all(text[:30] in shown for text in TEXTS)


def test_an_oracle_is_sized_by_the_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """Every order of an exact denoiser gives log P, also of a text given in the shell."""
    path = ["likelihood", "oracle:markov-3", "abcab abc", "--json"]
    assert main(path) == 1
    assert "outside the model's vocabulary: ' '" in capsys.readouterr().err
