"""Another alphabet: what was known is kept, and new symbols share what their relatives had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dsl.checkpoints.loading import load
from dsl.checkpoints.vocabulary import Ancestry, respelled
from dsl.cli.main import main
from dsl.core.denoiser import Endpoints
from dsl.core.streams import stream
from dsl.core.types import MASK
from dsl.models.config import ModelConfig
from dsl.models.dsl import DSLModel

OLD = list("abc ")
COUNTS = {"a": 60, "A": 20, "b": 10, "c": 30, "C": 10, " ": 40, ",": 9}


@pytest.fixture
def model() -> DSLModel:
    torch.manual_seed(0)
    shape = ModelConfig(
        4, hidden_dim=16, n_blocks=2, n_heads=2, cond_dim=4, codebook_dim=3,
        codebook="simplex", model_length=12, dropout=0.0,
    )  # fmt: skip
    made = DSLModel(shape).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def texts(model: DSLModel) -> torch.Tensor:
    """Known tokens of the old alphabet, and masks."""
    return torch.randint(MASK, 4, (8, 12), generator=stream(1))


def test_symbols_come_from_themselves_their_small_letter_or_a_space() -> None:
    found = Ancestry.of(OLD, list("aAbcC ,7"), COUNTS)
    assert list(found.parents) == [0, 0, 1, 2, 2, 3, 3, None]
    assert list(found.known) == [True, False, True, True, False, True, False, False]
    shares = found.log_share.exp()
    for group in ([0, 1], [2], [3, 4], [5, 6]):
        assert float(shares[group].sum()) == pytest.approx(1.0)
    assert float(shares[0] / shares[1]) == pytest.approx(61 / 21), "in proportion to the counts"


@pytest.mark.parametrize("blocks", [None, 5])
def test_relatives_share_the_probability_of_their_parent(
    model: DSLModel, blocks: int | None
) -> None:
    """Summed over those who begin as it, every posterior is the source's: nothing is forgotten."""
    ancestry = Ancestry.of(OLD, list("aAbcC ,"), COUNTS)
    made = respelled(model, ancestry, blocks=blocks, apart=0.0)
    assert made.config.n_blocks == (blocks or 2)
    own = torch.tensor([0, 2, 3, 5])  # where the old symbols are in the new alphabet
    read = texts(model)
    with torch.no_grad():
        was = model(Endpoints(read)).softmax(dim=-1)
        now = made(Endpoints(own[read].where(read != MASK, MASK))).softmax(dim=-1)
    parents = torch.tensor(ancestry.parents)
    summed = torch.zeros_like(was).index_add(-1, parents, now)
    torch.testing.assert_close(summed, was, atol=2e-3, rtol=0)


def test_new_symbols_can_be_told_apart_from_their_parents(model: DSLModel) -> None:
    ancestry = Ancestry.of(OLD, list("aAbcC ,"), COUNTS)
    made = respelled(model, ancestry)
    small, capital = torch.zeros(1, 12, dtype=torch.long), torch.ones(1, 12, dtype=torch.long)
    with torch.no_grad():
        assert (made(Endpoints(small)) - made(Endpoints(capital))).abs().max() > 1e-2


def test_blocks_are_kept_and_other_networks_refused(model: DSLModel) -> None:
    ancestry = Ancestry.of(OLD, OLD, {})
    with pytest.raises(ValueError, match="blocks must be at least the model's 2, got 1"):
        respelled(model, ancestry, blocks=1)
    shape = ModelConfig(4, hidden_dim=16, n_blocks=1, n_heads=2, codebook_dim=3, backbone="encoder")
    with pytest.raises(ValueError, match="with DiT blocks"):
        respelled(DSLModel(shape), ancestry)


def test_the_command_makes_a_model_of_the_corpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSL_CACHE", str(tmp_path / "cache"))
    corpus = tmp_path / "mine.txt"
    corpus.write_text("The Cat, 9 lives; the Dog. " * 200)
    out = tmp_path / "out"
    order = ["convert", "alphabet", "text8-tiny", str(out), "--corpus", str(corpus)]
    assert main([*order, "--blocks", "7", "--length", "64", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    made = load(out)
    assert told["of"] == 27 and told["vocabulary"] == made.vocab_size == len(
        set(corpus.read_text())
    )
    assert made.length == 64 and made.can_say("The Cat, 9 lives; the Dog.")
    assert made.trained_on == load("text8-tiny").trained_on
    assert main(order) == 1
    assert "not an empty directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    "order, message",
    [
        (["alphabet", "text8-tiny"], "--corpus is required for alphabet"),
        (
            ["mdlm", "text8-tiny-mdlm", "--corpus", "english"],
            "--corpus is only for alphabet, got mdlm",
        ),
        (["alphabet", "text8-tiny-ar", "--corpus", "cyclic-7"], "is not a DSL model"),
        (["alphabet", "text8-tiny", "--corpus", "nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_one_line(
    order: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system, source, *rest = order
    assert main(["convert", system, source, str(tmp_path / "out"), *rest]) == 1
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
