"""The measures of MOSES, each with its sample size and standard error, and `--judge moses`."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from dsl._util.extras import require
from dsl._util.files import parse_json, write_text
from dsl.apps.molecules import chemistry, distances, published
from dsl.apps.molecules import corpus as moses
from dsl.apps.molecules.chemistry import features
from dsl.apps.molecules.distances import Molecules, Reference
from dsl.apps.molecules.published import hashes
from dsl.checkpoints import Model
from dsl.data import decode, document, ends
from dsl.evaluation import MOLECULES, JudgeSettings, text_hash, versions
from dsl.evaluation import Benchmark as Registered
from dsl.generation import Sample
from dsl.likelihoods import Mean, deviation
from dsl.version import __version__

Score = dict[str, Any]
Report = Callable[[str], None]
UNIQUE = {"unique_1k": 1_000, "unique_10k": 10_000}
SAMPLES = 30_000
"""Samples in the published table."""
SHORT = {"test": "test", "scaffold-test": "scaffold"}
"""The test sets in the names of scores."""


@dataclass(frozen=True, eq=False)
class Benchmark:
    """The references that samples are compared with."""

    references: Mapping[str, Reference]
    """The test sets by name."""
    training: np.ndarray
    """Hashes of the training molecules, sorted."""
    filters: chemistry.Filters
    resamples: int = 5
    """Bootstrap draws for the errors of FCD, Frag, Scaf and the properties."""
    seed: int = 0
    device: str = "cpu"

    def measure(self, texts: Sequence[str], *, report: Report = lambda _: None) -> dict[str, Score]:
        """Measure texts; those that rdkit can read are valid molecules.

        As in the published code, duplicates count in all measures except novelty.
        """
        if not texts:
            raise ValueError("expected at least one molecule to measure, got none")
        read_as = [chemistry.canonical(text) for text in texts]
        spelled = [text for text in read_as if text is not None]
        scores = {"valid": share([text is not None for text in read_as])}
        scores |= {name: unique(spelled, most) for name, most in UNIQUE.items()}
        if len(spelled) < 2:
            unknown = _score(math.nan, math.nan, len(spelled))
            return {name: scores.get(name, unknown) for name in MOLECULES}
        different = sorted(set(spelled))
        report("looking molecules up in the training set")
        new = ~np.isin(hashes(different), self.training)
        scores["novel"] = share(new.tolist())
        report("filtering")
        passed = dict(zip(different, self.filters.passed(different), strict=True))
        scores["filters"] = share([passed[text] for text in spelled])
        read = partial(features, device=self.device, report=report)
        molecules = Molecules.of(spelled, read, report)
        report("comparing fingerprints")
        scores |= diversity(molecules, self.device)
        for split, reference in self.references.items():
            scores |= self._distances(molecules, SHORT[split], reference, report)
        return {name: scores[name] for name in MOLECULES if name in scores}

    def _distances(
        self, molecules: Molecules, split: str, reference: Reference, report: Report
    ) -> dict[str, Score]:
        report(f"comparing with {split}")
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
        """Return a score with its bootstrap error."""
        draw = np.random.default_rng(self.seed)
        even = np.full(n, 1 / n)
        again = [rule(draw.multinomial(n, even).astype(float)) for _ in range(self.resamples)]
        return _score(rule(None), deviation(again), n)


def share(hits: Sequence[bool]) -> Score:
    """Return the share of hits with its binomial error."""
    p, n = sum(hits) / len(hits), len(hits)
    return _score(p, math.sqrt(p * (1 - p) / n), n)


def unique(spelled: Sequence[str], most: int) -> Score:
    """Return the share of unique molecules among the first `most` valid ones.

    The error is the standard deviation of this share over groups of `most`, if there are several.
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

    They are means over pairs, and each molecule is in two of every n pairs. So the error is twice
    that of the mean over molecules.
    """
    once, squared = distances.closeness(molecules.fingerprints, device=device)
    n, root = len(once), float(np.sqrt(squared).mean())
    errors = [2 * Mean.of(torch.from_numpy(held)).stderr for held in (once, squared)]
    return {
        "int_div": _score(1 - float(once.mean()), errors[0], n),
        # delta method: the error of √x is that of x over 2√x
        "int_div2": _score(1 - root, errors[1] / (2 * root), n),
    }


def _score(value: float, stderr: float, n: int) -> Score:
    """Return a score; NaN becomes null, because JSON has no NaN."""
    said = {"mean": float(value), "stderr": float(stderr)}
    return {k: v if math.isfinite(v) else None for k, v in said.items()} | {"n": n}


def warnings(scores: Mapping[str, Score]) -> list[str]:
    """List the scores that have fewer molecules than in the published table."""
    found = []
    valid = scores["unique_10k"]["n"]
    for name, most in UNIQUE.items():
        if scores[name]["n"] < most:
            found.append(f"{name} has {scores[name]['n']:,} valid molecules instead of {most:,}")
    if scores["valid"]["n"] < SAMPLES:
        found.append(
            f"MOSES uses {SAMPLES:,} samples; with {scores['valid']['n']:,} FCD is too high, and "
            "Frag and Scaf are too low"
        )
    if valid < 2:
        found.append(f"distances need at least 2 valid molecules, got {valid}")
    return found


NAME = "moses"
LIBRARIES = ("torch", "rdkit", "fcd", "scipy")


def benchmark(
    cache: Path, *, resamples: int = 5, device: str = "cpu", report: Report = lambda _: None
) -> Benchmark:
    """Prepare MOSES: test sets, training molecules and filters; downloads are cached."""
    return Benchmark(
        {
            split: published.reference(split, cache, report=report)
            for split in ("test", "scaffold-test")
        },
        published.training(cache, report=report),
        published.filters(cache, report=report),
        resamples=resamples,
        device=device,
    )


def molecule(tokens: Sequence[int], tokenizer: Tokenizer) -> str:
    """Return the text of a sample up to its end token, or without one, its first line."""
    brackets = ends(tokenizer)
    text = decode(tokenizer, document(tokens, brackets))
    return text if brackets[1] else text.split("\n")[0]


class MoleculeMeasure:
    """Measures samples and held-out molecules by MOSES."""

    def __init__(
        self,
        found: Benchmark,
        tokenizer: Tokenizer,
        n: int,
        *,
        cache: Path,
        report: Report = lambda _: None,
    ) -> None:
        self.benchmark, self.tokenizer, self.n = found, tokenizer, n
        self.cache, self.report = cache, report

    def protocol(self) -> dict[str, Any]:
        """Return all settings that the scores depend on."""
        counts = {split: moses.SPLITS[split] for split in self.benchmark.references}
        return {
            "dsl": __version__,
            "reference": f"{NAME}/{' and '.join(counts)}",
            "reference_texts": sum(counts.values()),
            "features": "ChemNet",
            "judge": f"{NAME} ({moses.REQUIREMENT})",
            "resamples": self.benchmark.resamples,
            "seed": self.benchmark.seed,
            "versions": versions(LIBRARIES),
        }

    def samples(self, samples: Sequence[Sample], about: Mapping[str, Any]) -> dict[str, Any]:
        """Measure samples, with the scores of held-out molecules for comparison."""
        if not samples:
            raise ValueError("expected at least one sample to measure, got none")
        texts = [molecule(sample.tokens, self.tokenizer) for sample in samples]
        seconds = sum(sample.seconds for sample in samples)
        tokens = sum(len(sample.tokens) for sample in samples)
        scores = self.benchmark.measure(texts, report=self.report)
        return {
            "samples": len(samples),
            "samples_hash": text_hash([sample.text for sample in samples]),
            "about": dict(about),
            "protocol": self.protocol(),
            "nfe": mean_of([float(sample.nfe) for sample in samples]),
            "tokens_per_second": tokens / seconds if seconds else None,
            "scores": scores,
            "held_out": self.held_out(),
            "warnings": warnings(scores),
        }

    def held_out(self) -> dict[str, Score]:
        """Measure the same number of validation molecules; the result is cached.

        They are part of the published training set, so novelty is left out.
        """
        texts = held_out_molecules(self.cache, self.n)
        identity = json.dumps([self.protocol(), text_hash(texts)])
        name = f"held-out-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
        path = self.cache / NAME / name
        if path.is_file():
            kept: dict[str, Score] = parse_json(path.read_bytes(), str(path))
            return kept
        self.report("measuring held-out molecules")
        scores = self.benchmark.measure(texts, report=self.report)
        del scores["novel"]
        write_text(path, json.dumps(scores))
        return scores


def held_out_molecules(cache: Path, n: int) -> list[str]:
    """Return n molecules spread over the validation split, or all of it."""
    every = list(moses.published("train", cache / "downloads", lambda *_: None))[:: moses.EVERY]
    n = min(n, len(every))
    return [every[i * len(every) // n].decode() for i in range(n)]


def _check(settings: JudgeSettings) -> None:
    """Raise an error for another reference, or if the extra is not installed."""
    if settings.reference not in ("", NAME):
        raise ValueError(
            f"--judge {NAME} has its own reference: remove --reference, got {settings.reference!r}"
        )
    for module in ("rdkit", "fcd", "scipy"):
        require(module, extra=chemistry.EXTRA)


def _build(settings: JudgeSettings, model: Model, n: int, cache: Path, report: Report) -> Any:
    """Prepare MOSES for n samples of a model."""
    if model.tokenizer is None:
        raise ValueError(f"--judge {NAME} needs a model with a tokenizer, got {model.name}")
    found = benchmark(cache, resamples=settings.resamples, device=settings.device, report=report)
    return MoleculeMeasure(found, model.tokenizer, n, cache=cache, report=report)


MOSES = Registered(_check, _build)
