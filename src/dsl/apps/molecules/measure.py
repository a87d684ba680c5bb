"""The measures of MOSES: of a list of texts, each with how many it is of and its standard error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from dsl._util.extras import require
from dsl.apps.molecules import chemistry, distances
from dsl.apps.molecules.chemistry import features
from dsl.apps.molecules.distances import Molecules, Reference
from dsl.apps.molecules.published import hashes
from dsl.evaluation import MOLECULES
from dsl.likelihoods import Mean, deviation

Score = dict[str, Any]
Tell = Callable[[str], None]
UNIQUE = {"unique_1k": 1_000, "unique_10k": 10_000}
SAMPLES = 30_000
"""How many samples the published table is of."""
SHORT = {"test": "test", "scaffold-test": "scaffold"}
"""What the names of scores call the test sets."""


@dataclass(frozen=True, eq=False)
class Benchmark:
    """What samples are held against."""

    references: Mapping[str, Reference]
    """The test sets by name."""
    training: np.ndarray
    """Hashes of the training molecules, sorted."""
    filters: chemistry.Filters
    resamples: int = 5
    """Bootstrap draws behind the errors of FCD, Frag, Scaf and the properties."""
    seed: int = 0
    device: str = "cpu"

    def measure(self, texts: Sequence[str], *, tell: Tell = lambda _: None) -> dict[str, Score]:
        """Measure texts, which are molecules if rdkit can read them.

        As in the published code, duplicates count in all measures but novelty.
        """
        if not texts:
            raise ValueError("there are no molecules to measure")
        read_as = [chemistry.canonical(text) for text in texts]
        spelled = [text for text in read_as if text is not None]
        scores = {"valid": share([text is not None for text in read_as])}
        scores |= {name: unique(spelled, most) for name, most in UNIQUE.items()}
        if len(spelled) < 2:
            unknown = _score(math.nan, math.nan, len(spelled))
            return {name: scores.get(name, unknown) for name in MOLECULES}
        different = sorted(set(spelled))
        tell("looking molecules up in the training set")
        new = ~np.isin(hashes(different), self.training)
        scores["novel"] = share(new.tolist())
        tell("filtering")
        passed = dict(zip(different, self.filters.passed(different), strict=True))
        scores["filters"] = share([passed[text] for text in spelled])
        read = partial(features, device=self.device, tell=tell)
        molecules = Molecules.of(spelled, read, tell)
        tell("comparing fingerprints")
        scores |= diversity(molecules, self.device)
        for split, reference in self.references.items():
            scores |= self._distances(molecules, SHORT[split], reference, tell)
        return {name: scores[name] for name in MOLECULES if name in scores}

    def _distances(
        self, molecules: Molecules, split: str, reference: Reference, tell: Tell
    ) -> dict[str, Score]:
        tell(f"comparing with {split}")
        scaffolds = [[] if held is None else [held] for held in molecules.scaffolds]
        alike = distances.nearest(
            molecules.fingerprints, reference.fingerprints, device=self.device
        )
        wasserstein: Any = require("scipy.stats", extra=chemistry.EXTRA).wasserstein_distance

        def moved(column: int, weights: distances.Weights | None) -> float:
            ours, theirs = molecules.properties[:, column], reference.properties[:, column]
            return float(wasserstein(ours, theirs, u_weights=weights))

        measures: dict[str, Callable[[distances.Weights | None], float]] = {
            f"fcd_{split}": lambda w: distances.frechet(
                molecules.features, reference.mean, reference.root, w
            ),
            f"frag_{split}": lambda w: distances.cosine(
                molecules.fragments, reference.fragments, w
            ),
            f"scaf_{split}": lambda w: distances.cosine(scaffolds, reference.scaffolds, w),
        }
        if split == SHORT["test"]:  # as in the published code
            names = enumerate(chemistry.PROPERTIES)
            measures |= {f"{name.lower()}_{split}": partial(moved, i) for i, name in names}
        found = {name: self._bootstrapped(rule, len(alike)) for name, rule in measures.items()}
        return {f"snn_{split}": mean_of(alike)} | found

    def _bootstrapped(self, rule: Callable[[distances.Weights | None], float], n: int) -> Score:
        """Measure, and measure again with molecules drawn anew: what other samples would give."""
        draw = np.random.default_rng(self.seed)
        even = np.full(n, 1 / n)
        again = [rule(draw.multinomial(n, even).astype(float)) for _ in range(self.resamples)]
        return _score(rule(None), deviation(again), n)


def share(hits: Sequence[bool]) -> Score:
    """Return a share with its binomial error."""
    p, n = sum(hits) / len(hits), len(hits)
    return _score(p, math.sqrt(p * (1 - p) / n), n)


def unique(spelled: Sequence[str], most: int) -> Score:
    """Return the share of different molecules among the first so many valid ones.

    The error is the spread of the same share among further groups of as many, if there are any.
    """
    groups = [spelled[i : i + most] for i in range(0, len(spelled), most)]
    shares = [len(set(group)) / len(group) for group in groups if len(group) == most]
    if not groups:
        return _score(math.nan, math.nan, 0)
    value = len(set(groups[0])) / len(groups[0])
    return _score(value, deviation(shares), len(groups[0]))


def mean_of(values: Sequence[float] | np.ndarray) -> Score:
    """Average with its standard error."""
    found = Mean.of(torch.as_tensor(values, dtype=torch.float64))
    return _score(found.mean, found.stderr, len(values))


def diversity(molecules: Molecules, device: str = "cpu") -> dict[str, Score]:
    """Return IntDiv and IntDiv2.

    A mean over pairs: each molecule is in two of every n, so its error is twice that of the mean of
    what each molecule contributes.
    """
    once, squared = distances.closeness(molecules.fingerprints, device=device)
    n, root = len(once), float(np.sqrt(squared).mean())
    errors = [2 * Mean.of(torch.from_numpy(held)).stderr for held in (once, squared)]
    return {
        "int_div": _score(1 - float(once.mean()), errors[0], n),
        # the delta method: a root moves by its argument's error over twice itself
        "int_div2": _score(1 - root, errors[1] / (2 * root), n),
    }


def _score(value: float, stderr: float, n: int) -> Score:
    """Describe a number; what JSON cannot say is null."""
    said = {"mean": float(value), "stderr": float(stderr)}
    return {k: v if math.isfinite(v) else None for k, v in said.items()} | {"n": n}


def warnings(scores: Mapping[str, Score]) -> list[str]:
    """Say which scores are of fewer molecules than the published table's."""
    found = []
    valid = scores["unique_10k"]["n"]
    for name, most in UNIQUE.items():
        if scores[name]["n"] < most:
            found.append(f"{name} is of {scores[name]['n']:,} valid molecules, not of {most:,}")
    if scores["valid"]["n"] < SAMPLES:
        found.append(
            f"MOSES takes {SAMPLES:,} samples; of {scores['valid']['n']:,} FCD is too large, and "
            "Frag and Scaf are too small"
        )
    if valid < 2:
        found.append("no set of molecules can be compared: fewer than two are valid")
    return found
