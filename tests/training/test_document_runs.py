"""A run on documents with a learned tokenizer: what it leaves, how it goes on, what it is asked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import dsl
from dsl.checkpoints.convert import halve
from dsl.cli.main import main
from dsl.data.bpe import learned
from dsl.data.corpora import prepare
from dsl.data.document_ends import padding
from dsl.evaluation.blocks import read
from dsl.evaluation.settings import JudgeSettings
from dsl.generation.engine import generate
from dsl.training import recipe as recipes
from dsl.training.run import Watch
from tests.training.conftest import CYCLIC, weights

SENTENCES = ["Once upon a time.", "The cat sat on a mat, and slept.", "A dog ran!", "It was late."]
CHANGES = [
    "data.tokenizer=bpe-270", "data.windows=documents", "data.length=24", "data.validation=4",
    "trainer.steps=4", "trainer.batch=4", "trainer.micro_batch=4", "trainer.save_every=2",
    "optimizer.schedule=constant",
]  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A corpus, a cache, and a run that is done."""

    corpus: str
    cache: Path
    out: Path
    told: list[str]

    def train(self, out: Path, *changes: str) -> dsl.training.run.Trained:  # type: ignore[name-defined]
        listed = [f"data.corpus={self.corpus}", *CHANGES, *changes]
        return dsl.train(
            CYCLIC, out, changes=listed, smoke=True, cache=self.cache,
            watch=Watch(self.told.append),
        )  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("documents")
    file = folder / "texts.jsonl"
    texts = [*SENTENCES, "", *SENTENCES, " ".join(SENTENCES * 2)] * 30
    file.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    place = Place(str(file), folder / "cache", folder / "run", [])
    place.train(place.out)
    yield place


def test_what_the_run_leaves(place: Place) -> None:
    model = dsl.load(place.out / "model")
    assert model.documents and not model.share
    assert (model.end, model.vocab_size, model.trained_on) == (269, 270, 4 * 4 * 24)
    kept = dsl.load(next((place.out / "checkpoints").glob("step-*")))
    assert kept.documents and kept.trained_on is None
    said = next(line for line in place.told if "documents" in line)
    assert "; 30 empty ones were left out; " in said
    assert said.endswith("are too long for a block and are cut")


def test_a_model_keeps_its_kind_when_it_is_halved(place: Place, tmp_path: Path) -> None:
    halve(place.out / "model", tmp_path / "half")
    assert dsl.load(tmp_path / "half").documents


def test_a_run_goes_on_with_the_tokenizer_it_began_with(place: Place, tmp_path: Path) -> None:
    """Even if the cache has lost it: and the run is the one that was not interrupted."""
    place.train(tmp_path / "cut", "trainer.steps=2")
    for file in place.cache.rglob("bpe-270.json"):
        file.unlink()
    place.train(tmp_path / "cut")
    assert not list(place.cache.rglob("bpe-270.json"))
    ours, theirs = weights(tmp_path / "cut"), weights(place.out)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_tokenizer_that_was_changed_is_noticed(place: Place, tmp_path: Path) -> None:
    shutil.copytree(place.out, tmp_path / "run")
    other = learned(prepare(place.corpus, place.cache), 265)
    other.save(str(tmp_path / "run/model/tokenizer.json"))
    with pytest.raises(ValueError, match=r"the tokenizer of .* changed since the run"):
        place.train(tmp_path / "run", "trainer.steps=5")
    for content in ("null", "[]", "{"):
        (tmp_path / "run/data.json").write_text(content)
        with pytest.raises(ValueError, match=r"data\.json (must be a JSON object|is not JSON)"):
            place.train(tmp_path / "run", "trainer.steps=5")


def test_documents_that_share_a_block(place: Place, tmp_path: Path) -> None:
    longer = ["data.share=true", "data.length=64", "trainer.steps=2", "objective=mdlm"]
    done = place.train(tmp_path / "run", *longer)
    model = dsl.load(done.model)
    assert model.documents and model.share
    blocks, _ = read(model, place.corpus, "test", 64, 4, place.cache)
    ends = (blocks == model.end) & ~padding(blocks, model.ends)
    assert int(ends.sum(dim=1).max()) > 1
    assert (
        dsl.likelihood(model, "A dog ran!", budget=4).scored == len(model.encode("A dog ran!")) + 1
    )


def test_every_verb_knows_the_end(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, cache = str(place.out / "model"), ["--cache", str(place.cache)]
    drawn = tmp_path / "drawn.jsonl"
    draw = ["sample", "--model", model, "-n", "6", "--prompt", "Once", "--temperature", "0.8"]
    assert main([*draw, "--top-p", "0.9", "--sampler", "mdlm@4", "--out", str(drawn)]) == 0
    about, *lines = (json.loads(line) for line in drawn.read_text().splitlines())
    assert (
        about["about"]["sampler"]["draw"] | {"temperature": 0.8, "top_p": 0.9}
        == (about["about"]["sampler"]["draw"])
    )
    loaded = dsl.load(model)
    for line in lines:
        assert len(line["tokens"]) == 24 and line["text"].startswith("Once")
        assert "<|endoftext|>" not in line["text"]
        assert line["text"] == loaded.decode(loaded.document(line["tokens"]))
    capsys.readouterr()
    assert main(["infill", "A [2] ran!", "--model", model]) == 0
    assert capsys.readouterr().out.strip().endswith("ran!")
    score = ["likelihood", model, place.corpus, "--split", "test", "--limit", "3", *cache]
    assert main([*score, "--only", "roar", "--budget", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["roar"]["bits_per_document"] > 0 and found["tokens"] < 3 * 24
    assert main(["likelihood", model, "A dog ran!", "--only", "roar", "--budget", "4"]) == 0
    assert "bits per document" in capsys.readouterr().out
    assert main(["calibrate", model, place.corpus, "--limit", "4", "--json", *cache]) == 0


def test_samples_are_measured_up_to_their_end(place: Place, tmp_path: Path) -> None:
    """Beside documents of the corpus, which are known in full: all words are real, none is cut."""
    drawn = tmp_path / "drawn.jsonl"
    model = str(place.out / "model")
    assert main(["sample", "--model", model, "-n", "4", "--sampler", "mdlm@2",
                 "--out", str(drawn)]) == 0  # fmt: skip
    settings = JudgeSettings(
        reference=place.corpus, features="none", judge="none", novelty=2, cache=place.cache
    )
    found = dsl.evaluate(drawn, settings)
    assert found["held_out"]["known_words"]["mean"] == 1
    assert found["held_out"]["novelty"]["mean"] == 0
    assert found["held_out"]["empty"]["mean"] == 0
    assert 0.5 < found["held_out"]["end_rate"]["mean"] <= 1
    assert found["protocol"]["documents"] is True
    samples = generate(model, 4, sampler="mdlm@2")
    ended = [dsl.load(model).end in sample.tokens for sample in samples]
    assert found["scores"]["end_rate"]["mean"] == sum(ended) / 4


@pytest.mark.parametrize(
    "changes, message",
    [
        (["data.tokenizer=bpe-100"], "bpe-N needs N of at least 257"),
        (["data.tokenizer=bpe-999999"], "too short for bpe-999999"),
        (["data.tokenizer=bytes"], "tokenizer with an end token"),
        (["data.corpus=python-docs", "data.tokenizer=mdlm-text8"], "has no documents"),
        (["data.windows=wrap", "data.share=true"], "data.share needs data.windows: documents"),
        (["data.windows=document"], "data.windows"),
        (["data.length=1"], "no room for text and its end"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    changes: list[str], message: str, place: Place, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        place.train(tmp_path / "run", *changes)


def test_recipes_remember_the_kind_of_blocks() -> None:
    recipe = recipes.read(CYCLIC, ["data.windows=documents", "data.share=true"])
    assert recipe.data.windows == "documents" and recipe.data.share
    assert "share: true" in recipes.write(recipe)


def test_models_written_before_have_no_documents(tmp_path: Path) -> None:
    model = dsl.load("text8-tiny")
    assert not model.documents and model.end is None
    assert model.document([1, 2, 3]) == [1, 2, 3]
    shutil.copytree(model.weights or "", tmp_path / "model")
    (tmp_path / "model/training.json").write_text('{"tokens": 3, "documents": true}')
    with pytest.raises(ValueError, match="trained on documents, but its tokenizer has no end"):
        dsl.load(tmp_path / "model")
