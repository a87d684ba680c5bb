"""A small MOSES package made of benzenes, with statistics pickled as in 2020."""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy

from dsl.apps.molecules import corpus as moses
from dsl.apps.molecules import published
from dsl.apps.molecules.chemistry import PROPERTIES, Filters, features, respelled
from dsl.apps.molecules.distances import Molecules, Reference
from dsl.apps.molecules.measure import Benchmark

MCF = b"names,smarts\nMCF1,[#6]#[#7]\n"
PAINS = b'"[#16]-[#1]"          ,"<regId=thiol>"\n'


def texts(begin: int, end: int) -> list[str]:
    every = moses.benzenes(Path(), lambda *_: None)
    return [text.decode() for text in every][begin:end]


def training() -> list[str]:
    """A hundred molecules, spelled canonically as the published ones are."""
    return [respelled(text) for text in texts(48, 148)]


def statistics(reference: Reference) -> dict[str, Any]:
    columns = zip(PROPERTIES, reference.properties.T.tolist(), strict=True)
    return {
        "FCD": {"mu": reference.mean, "sigma": reference.covariance},
        "SNN": {"fps": np.unpackbits(reference.fingerprints, axis=1)},
        "Frag": {"frag": reference.fragments},
        "Scaf": {"scaf": reference.scaffolds},
        **{name: {"values": values} for name, values in columns},
    }


def pickled(content: Any) -> bytes:
    """An .npz with one object, whose pickle names numpy's modules as it did before version 2."""
    held = np.empty((), dtype=object)
    held[()] = content
    file = io.BytesIO()
    npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(held))
    program = pickle.dumps(held, protocol=2)
    file.write(program.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("stats.npy", file.getvalue())
    return archive.getvalue()


def table(smiles: list[str]) -> bytes:
    return gzip.compress("\n".join(["SMILES", *smiles, ""]).encode())


def wheel(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.fixture(scope="session")
def described() -> Molecules:
    pytest.importorskip("rdkit", reason="the extra 'molecules' is not installed")
    pytest.importorskip("fcd", reason="the extra 'molecules' is not installed")
    return Molecules.of(texts(0, 48), features)


@pytest.fixture(scope="session")
def reference(described: Molecules) -> Reference:
    return Reference.of(described)


@pytest.fixture(scope="session")
def judge(reference: Reference) -> Benchmark:
    """A benchmark with the first 48 benzenes as test sets; the last 24 of them are for training."""
    known = np.sort(published.hashes(Molecules.of(texts(24, 48), nothing).smiles))
    both = {"test": reference, "scaffold-test": reference}
    return Benchmark(both, known, Filters.read(MCF, PAINS), resamples=2)


def nothing(smiles: Any) -> np.ndarray:
    """Placeholder features."""
    return np.zeros((len(smiles), 2))


@pytest.fixture
def package(
    reference: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, bytes]:
    """Files of a package that pip would download, with matching digests."""
    data = "moses/dataset/data"
    files = {
        f"{data}/train.csv.gz": table(training()),
        f"{data}/test.csv.gz": table(texts(0, 48)),
        f"{data}/test_scaffolds.csv.gz": table(texts(0, 48)),
        f"{data}/test_stats.npz": pickled(statistics(reference)),
        f"{data}/test_scaffolds_stats.npz": pickled(statistics(reference)),
        "moses/metrics/mcf.csv": MCF,
        "moses/metrics/wehi_pains.csv": PAINS,
    }
    monkeypatch.setattr(moses, "DIGESTS", {name: moses.digest(files[name]) for name in files})
    served = wheel(tmp_path / "served.whl", files | {"moses/__init__.py": b"raise SystemExit"})
    monkeypatch.setattr(moses, "package", lambda *_, **__: served)
    return files
