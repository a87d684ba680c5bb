"""The MOSES package: downloaded completely, checked, and read without running its code."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsl.apps.molecules import corpus as moses
from dsl.apps.molecules import published
from dsl.apps.molecules.distances import Reference
from dsl.cli.main import main
from dsl.data import catalogue
from dsl.data.corpora import prepare, verify
from tests.apps.molecules.conftest import pickled, texts, training, wheel

Files = dict[str, bytes]


def quiet(*_: object) -> None:
    return None


def test_the_corpus_keeps_the_published_splits(
    package: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One training molecule in fifty is for validation; none is lost or duplicated."""
    counts = {"train": 98, "validation": 2, "test": 48, "scaffold-test": 48}
    origin = replace(moses.MOSES, splits=counts)
    monkeypatch.setitem(catalogue.CORPORA._loaded, "moses", origin)
    corpus = prepare("moses", tmp_path)
    verify(corpus)
    found = {split: corpus.read(split).decode().split("\0") for split in corpus.splits}
    assert {split: len(held) for split, held in found.items()} == counts
    assert found["validation"] == [training()[0], training()[50]]
    assert sorted(found["train"] + found["validation"]) == sorted(training())
    assert found["test"] == found["scaffold-test"] == texts(0, 48)
    assert not list(tmp_path.rglob("*.py"))


def test_published_counts() -> None:
    """1,584,663 for training, one in fifty of them held out; 1,936,962 in total."""
    published_ones = moses.SPLITS["train"] + moses.SPLITS["validation"]
    assert published_ones == 1_584_663
    assert moses.SPLITS["validation"] == len(range(0, published_ones, moses.EVERY))
    assert sum(moses.SPLITS.values()) == 1_936_962


@pytest.mark.parametrize("harm", ["truncated", "altered", "incomplete"])
def test_a_damaged_package_is_refused_in_one_line(
    harm: str,
    package: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "moses/dataset/data/test.csv.gz"
    files = {k: v for k, v in package.items() if harm != "incomplete" or k != name}
    if harm == "altered":
        files[name] = files[name][:-1] + b"x"
    served = wheel(tmp_path / "harmed.whl", files)
    if harm == "truncated":
        served.write_bytes(served.read_bytes()[:2000])
    monkeypatch.setattr(moses, "package", lambda *_, **__: served)
    assert main(["data", "moses", "--cache", str(tmp_path / "cache")]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "the download of molsets==0.3.1 is damaged" in said
    assert not (tmp_path / "cache/downloads/molsets-0.3.1").exists()


def test_a_file_that_was_altered_in_the_cache_is_refused(package: Files, tmp_path: Path) -> None:
    folder = moses.fetch(tmp_path, quiet)
    (folder / "moses/metrics/mcf.csv").write_bytes(b"names,smarts\n")
    with pytest.raises(ValueError, match=r"mcf\.csv differs from the published file"):
        moses.read("moses/metrics/mcf.csv", tmp_path, quiet)


def test_statistics_survive_the_old_pickle_and_the_cache(
    package: Files, reference: Reference, tmp_path: Path
) -> None:
    for _ in range(2):  # computed, then read from the cache
        found = published.reference("test", tmp_path)
        for field in fields(Reference):
            ours, theirs = getattr(found, field.name), getattr(reference, field.name)
            assert np.array_equal(ours, theirs) if isinstance(ours, np.ndarray) else ours == theirs
    kept = next((tmp_path / "moses").glob("test-rdkit-*.npz"))
    kept.write_bytes(kept.read_bytes()[:1000])
    with pytest.raises(ValueError, match="is damaged; delete it to create it again"):
        published.reference("test", tmp_path)


class Program:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/it-was-run",)


def test_a_pickle_that_would_run_code_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the statistics call \w+\.system, which is not allowed"):
        published.unpickled(pickled(Program()))


def test_other_fingerprints_are_refused(reference: Reference) -> None:
    """A few may differ; in another order all do."""
    published.require_same_bits(texts(0, 48), reference.fingerprints)
    with pytest.raises(ValueError, match="must match the published statistics, got"):
        published.require_same_bits(texts(0, 48), reference.fingerprints[::-1])


def test_old_spellings_are_respelled() -> None:
    """Two molecules whose canonical spelling has changed."""
    for old in ("[H]N=c1n(C)c2ccccc2n1C", "C1CCc2sc3c(c2CC1)-c1nnnn1-c1nnnn1-3"):
        assert published.as_spelled(old) != old
        assert published.as_spelled(published.as_spelled(old)) == published.as_spelled(old)


def test_only_the_known_files_are_kept(package: Files, tmp_path: Path) -> None:
    folder = moses.fetch(tmp_path, quiet)
    held = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert held == sorted(package)
