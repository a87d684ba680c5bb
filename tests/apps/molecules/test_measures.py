"""Laws of the MOSES measures: limits, invariances, and two routes to the same number."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import chain

import numpy as np
import pytest
import torch

from dsl.apps.molecules import chemistry, distances
from dsl.apps.molecules.chemistry import Filters, features
from dsl.apps.molecules.distances import Molecules, Reference, root
from dsl.apps.molecules.measure import Benchmark, diversity, share, unique, warnings
from dsl.evaluation.suite import MOLECULES
from tests.apps.molecules.conftest import MCF, PAINS, texts

pytestmark = pytest.mark.usefixtures("described")


@pytest.fixture(scope="module")
def own(judge: Benchmark) -> dict[str, float]:
    """The test set measured as if it were samples."""
    return means(judge, texts(0, 48))


def means(judge: Benchmark, smiles: list[str]) -> dict[str, float]:
    return {name: score["mean"] for name, score in judge.measure(smiles).items()}


def test_a_set_is_like_itself(own: dict[str, float]) -> None:
    for split in ("test", "scaffold"):
        assert own[f"snn_{split}"] == pytest.approx(1)
        assert own[f"frag_{split}"] == own[f"scaf_{split}"] == pytest.approx(1)
        assert own[f"fcd_{split}"] == pytest.approx(0, abs=1e-4)
    for name in ("logp", "sa", "qed", "weight"):
        assert own[f"{name}_test"] == pytest.approx(0, abs=1e-9)
    assert own["valid"] == own["unique_1k"] == own["unique_10k"] == 1
    assert own["novel"] == pytest.approx(0.5)


def test_scores_do_not_depend_on_spelling_or_order(judge: Benchmark, own: dict[str, float]) -> None:
    spelled = [
        chemistry.rdkit("Chem").MolToSmiles(chemistry.molecule(text), doRandom=True)
        for text in texts(0, 48)
    ]
    random.Random(0).shuffle(spelled)
    assert len(set(spelled) - set(texts(0, 48))) > 20
    again = means(judge, spelled)
    assert again == {name: pytest.approx(value, abs=1e-4) for name, value in own.items()}


def test_invalid_texts_lower_validity_and_nothing_else(
    judge: Benchmark, own: dict[str, float]
) -> None:
    broken = ["", "c1cc", "C(", "Zz", "F(F)(F)F", "c1ccccc1c1", "CC=", "C)"]
    found = means(judge, [*broken[:4], *texts(0, 48), *broken[4:]])
    assert found.pop("valid") == pytest.approx(48 / 56)
    assert found == {k: pytest.approx(v, abs=1e-4) for k, v in own.items() if k != "valid"}


def test_one_molecule_repeated(judge: Benchmark) -> None:
    found = means(judge, ["Cc1ccccc1"] * 40)
    assert found["int_div"] == found["int_div2"] == pytest.approx(0, abs=1e-6)
    assert found["unique_1k"] == 1 / 40
    assert found["novel"] == 1
    assert found["scaf_test"] is None  # a single ring has no scaffold


def test_too_few_molecules_have_no_distances(judge: Benchmark) -> None:
    scores = judge.measure(["C(", "CC", "x"])
    assert set(scores) == set(MOLECULES)
    assert scores["valid"]["mean"] == pytest.approx(1 / 3)
    assert scores["fcd_test"] == {"mean": None, "stderr": None, "n": 1}
    assert "need at least 2 valid molecules, got 1" in warnings(scores)[-1]
    with pytest.raises(ValueError, match="at least one molecule to measure"):
        judge.measure([])


def test_warnings_state_the_number_of_molecules(judge: Benchmark) -> None:
    said = warnings(judge.measure([*texts(0, 6), "C("]))
    assert said[0] == "unique_1k has 6 valid molecules instead of 1,000"
    assert "30,000 samples; with 7 FCD is too high" in said[2]


def test_tanimoto_is_rdkits(described: Molecules) -> None:
    bits = described.fingerprints[:6]
    ours = distances.tanimoto(*[torch.from_numpy(np.unpackbits(bits, axis=1)).float()] * 2)
    morgan = chemistry.rdkit("Chem.rdFingerprintGenerator").GetMorganGenerator(2, fpSize=1024)
    prints = [morgan.GetFingerprint(chemistry.molecule(s)) for s in described.smiles[:6]]
    alike = chemistry.rdkit("DataStructs").BulkTanimotoSimilarity
    theirs = torch.tensor([alike(one, prints) for one in prints])
    torch.testing.assert_close(ours, theirs)
    assert torch.equal(distances.tanimoto(torch.zeros(1, 4), torch.zeros(2, 4)), torch.ones(1, 2))


def test_blocks_do_not_matter(described: Molecules, monkeypatch: pytest.MonkeyPatch) -> None:
    bits = described.fingerprints
    whole = distances.nearest(bits[:20], bits[10:]), distances.closeness(bits)
    monkeypatch.setattr(distances, "BLOCK", 7)
    assert np.allclose(whole[0], distances.nearest(bits[:20], bits[10:]))
    assert np.allclose(whole[1], distances.closeness(bits))


def test_the_frechet_distance_is_that_of_the_fcd_package(described: Molecules) -> None:
    from fcd import get_predictions, load_ref_model
    from fcd.utils import calculate_frechet_distance

    theirs = get_predictions(load_ref_model(), described.smiles[:8], n_jobs=0)
    np.testing.assert_allclose(described.features[:8], theirs, rtol=1e-4, atol=1e-5)
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(60, 5)), 1 + rng.normal(size=(40, 5)) @ rng.normal(size=(5, 5))
    sums = [(x.mean(axis=0), np.cov(x, rowvar=False)) for x in (one, other)]
    found = distances.frechet(one, sums[1][0], root(sums[1][1]))
    assert found == pytest.approx(calculate_frechet_distance(*chain.from_iterable(sums)), rel=1e-6)


def test_a_weight_is_a_repetition(described: Molecules, reference: Reference) -> None:
    weights = np.random.default_rng(1).multinomial(48, np.full(48, 1 / 48)).astype(float)
    again = np.repeat(np.arange(48), weights.astype(int))
    rows = described.features[:, :20].astype(float)
    sums = reference.mean[:20], root(reference.covariance[:20, :20])
    assert distances.frechet(rows, *sums, weights) == pytest.approx(
        distances.frechet(rows[again], *sums)
    )
    parts = described.fragments
    known = Counter(chain.from_iterable(parts[:10]))
    assert distances.cosine(parts, known, weights) == pytest.approx(
        distances.cosine([parts[i] for i in again], known)
    )


def test_similarity_of_counts() -> None:
    assert distances.cosine([["a"], ["b"]], Counter("ab")) == pytest.approx(1)
    assert distances.cosine([["a"], ["b"]], Counter("a")) == pytest.approx(math.sqrt(0.5))
    assert distances.cosine([["a"]], Counter("b")) == 0
    assert math.isnan(distances.cosine([[]], Counter("b")))


def test_filters_are_patterns_elements_charges_and_rings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filters = Filters.read(MCF, PAINS)
    judged = {
        "Cc1ccccc1": True,
        "N#Cc1ccccc1": False,  # a pattern of the first table
        "Sc1ccccc1": False,  # a pattern of the second, which needs explicit hydrogens
        "CSc1ccccc1": True,
        "Ic1ccccc1": False,
        "C[N+](C)(C)C": False,
        "C1CCCCCC1": True,
        "C1CCCCCCC1": False,
    }
    assert filters.passed(list(judged)) == list(judged.values())
    monkeypatch.setattr(chemistry, "TOGETHER", 3)
    assert filters.passed(list(judged)) == list(judged.values())
    assert filters.passed([]) == []


def test_filters_agree_with_single_searches() -> None:
    patterns = [chemistry.rdkit("Chem").MolFromSmarts(s) for s in ("C=O", "[#7]-[#1]", "c-[F,Br]")]
    mols = [chemistry.molecule(text) for text in texts(0, 60)]
    hydrogens = [chemistry.rdkit("Chem").AddHs(mol) for mol in mols]
    expected = [not any(h.HasSubstructMatch(p) for p in patterns) for h in hydrogens]
    assert Filters(patterns).passed(texts(0, 60)) == expected
    assert 0 < sum(expected) < 60


def test_uniqueness_is_measured_on_the_first_molecules() -> None:
    spelled = ["a", "b", "a", "c", "d", "d", "e"]
    assert unique(spelled, 3) == {
        "mean": pytest.approx(2 / 3),
        "stderr": pytest.approx(0.0),
        "n": 3,
    }
    assert unique(spelled, 2)["mean"] == 1
    assert unique(spelled, 2)["stderr"] == pytest.approx(0.2886751)
    assert unique(spelled, 100)["n"] == 7
    assert unique([], 100) == {"mean": None, "stderr": None, "n": 0}


def test_errors_are_the_standard_deviation_of_other_draws() -> None:
    """200 draws of the diversity of random fingerprints, and of coin tosses."""
    rng = np.random.default_rng(2)
    found: dict[str, list[tuple[float, float]]] = {"int_div": [], "int_div2": [], "share": []}
    for _ in range(200):
        density = rng.uniform(0.1, 0.6, size=(40, 1))
        bits = np.packbits(rng.random((40, 64)) < density, axis=1)
        empty = np.zeros((40, 0))
        scores = diversity(Molecules([""] * 40, bits, [], [], empty, empty))
        scores["share"] = share((rng.random(40) < 0.3).tolist())
        for name, held in found.items():
            held.append((scores[name]["mean"], scores[name]["stderr"]))
    for held in found.values():
        values, errors = np.array(held).T
        assert float(np.sqrt((errors**2).mean())) == pytest.approx(values.std(), rel=0.25)


def test_parts_of_a_molecule() -> None:
    mol = chemistry.molecule("O=C(Nc1ccccc1)c1ccncc1")
    assert chemistry.scaffold(mol) == chemistry.spelling(mol)
    assert chemistry.scaffold(chemistry.molecule("Cc1ccccc1")) is None
    assert sum("*" in part for part in chemistry.fragments(mol)) == 4
    assert chemistry.properties(chemistry.molecule("c1ccccc1"))[-1] == pytest.approx(
        78.11, abs=0.01
    )
    assert chemistry.molecule("") is None


def test_chemnet_refuses_long_molecules() -> None:
    with pytest.raises(ValueError, match="fewer than 350 characters, got 400"):
        features(["C" * 400])
    assert features([]).shape == (0, 512)
