"""`dsl evaluate --judge moses`, from a file of samples to a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dsl
from dsl.apps.molecules import corpus as smiles
from dsl.apps.molecules import measure
from dsl.cli.main import main
from dsl.data.tokenizers import characters
from dsl.evaluation.settings import JudgeSettings
from dsl.evaluation.suite import MOLECULES
from tests.apps.molecules.conftest import texts


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model of benzenes."""
    folder = tmp_path_factory.mktemp("run")
    job = ["train", "moses-tiny", "--smoke", "--out", str(folder / "run")]
    assert main([*job, "--cache", str(folder / "cache")]) == 0
    return folder / "run/model"


@pytest.fixture
def drawn(trained: Path, tmp_path: Path) -> Path:
    """Samples padded with end tokens; 13 of 14 are valid molecules."""
    model = dsl.load(trained)
    assert model.tokenizer is not None
    end = model.tokenizer.token_to_id(smiles.END)
    path = tmp_path / "samples.jsonl"
    lines = [{"about": {"model": str(trained), "length": 32}}]
    for index, text in enumerate([*texts(100, 112), "c1cc(", "C"]):
        tokens = model.encode(text)
        tokens += [end] * (32 - len(tokens))
        said = {"index": index, "text": model.decode(tokens), "tokens": tokens}
        lines.append(said | {"nfe": 8, "seconds": 0.5})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_from_samples_to_a_table(
    package: dict[str, bytes], drawn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """End tokens are cut off; 13 of 14 texts are valid, 12 of them from the training set."""
    command = ["evaluate", str(drawn), "--judge", "moses", "--cache", str(tmp_path / "cache")]
    command += ["--resamples", "2"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["scores"]) == list(MOLECULES)
    assert found["scores"]["valid"]["mean"] == pytest.approx(13 / 14)
    assert found["scores"]["novel"]["mean"] == pytest.approx(1 / 13)
    assert found["scores"]["novel"]["n"] == 13
    assert set(found["held_out"]) == set(MOLECULES) - {"novel"}
    assert found["held_out"]["valid"]["mean"] == 1
    assert found["nfe"]["mean"] == 8
    assert main(command) == 0  # now with held-out scores from the cache
    shown = capsys.readouterr().out
    assert "FCD, scaffold-test" in shown
    assert "MOSES uses 30,000 samples" in shown
    assert "held-out molecules" in shown
    library = dsl.evaluate(
        drawn, JudgeSettings(judge="moses", cache=tmp_path / "cache", resamples=2)
    )
    assert json.loads(json.dumps(library))["scores"] == found["scores"]


def test_wrong_references_are_refused(
    drawn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(drawn), "--judge", "moses", "--reference", "benzenes"]) == 1
    assert "--judge moses has its own reference" in capsys.readouterr().err
    assert main(["evaluate", str(drawn), "--judge", "none"]) == 1
    assert "name the corpus of real text" in capsys.readouterr().err


def test_a_molecule_ends_at_the_first_end_token() -> None:
    tokenizer = smiles.tokenizer({"C", "Cl"})
    ids = tokenizer.get_vocab()
    row = [ids["C"], ids["Cl"], ids[smiles.END], ids["C"], ids[smiles.END]]
    assert measure.molecule(row, tokenizer) == "CCl"
    assert measure.molecule(row[:2], tokenizer) == "CCl"
    assert measure.molecule(row[2:], tokenizer) == ""
    plain = characters("C\nl")
    assert measure.molecule(plain.encode("CCl\nCC").ids, plain) == "CCl"
