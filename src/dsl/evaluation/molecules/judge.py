"""`--judge moses`: samples of a model as molecules, beside molecules that it was not trained on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from dsl.data import moses
from dsl.data.documents import document
from dsl.data.tokenizers import decode, ends
from dsl.evaluation.molecules import published
from dsl.evaluation.molecules.measure import Benchmark, Score, mean_of, warnings
from dsl.evaluation.protocol import text_hash, versions
from dsl.files import parse_json, write_text
from dsl.sample_file import Sample
from dsl.version import __version__

NAME = "moses"
LIBRARIES = ("torch", "rdkit", "fcd", "scipy")

Tell = Callable[[str], None]


def benchmark(
    cache: Path, *, resamples: int = 5, device: str = "cpu", tell: Tell = lambda _: None
) -> Benchmark:
    """Prepare MOSES: its test sets, its training molecules and its filters.

    What is fetched and computed once is kept in the cache.
    """
    return Benchmark(
        {
            split: published.reference(split, cache, tell=tell)
            for split in ("test", "scaffold-test")
        },
        published.training(cache, tell=tell),
        published.filters(cache, tell=tell),
        resamples=resamples,
        device=device,
    )


def molecule(tokens: Sequence[int], tokenizer: Tokenizer) -> str:
    """Return the text of a sample before its end, or before a line's if its tokens have no end."""
    around = ends(tokenizer)
    text = decode(tokenizer, document(tokens, around))
    return text if around[1] else text.split("\n")[0]


class MoleculeMeasure:
    """Measures files of samples by MOSES, and held-out molecules like them."""

    def __init__(
        self,
        found: Benchmark,
        tokenizer: Tokenizer,
        n: int,
        *,
        cache: Path,
        tell: Tell = lambda _: None,
    ) -> None:
        self.benchmark, self.tokenizer, self.n = found, tokenizer, n
        self.cache, self.tell = cache, tell

    def protocol(self) -> dict[str, Any]:
        """Return everything a number depends on but the samples themselves."""
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
        """Measure samples, and put held-out molecules beside them."""
        if not samples:
            raise ValueError("there are no samples to measure")
        texts = [molecule(sample.tokens, self.tokenizer) for sample in samples]
        seconds = sum(sample.seconds for sample in samples)
        tokens = sum(len(sample.tokens) for sample in samples)
        scores = self.benchmark.measure(texts, tell=self.tell)
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
        """Measure as many molecules of the validation split, once; the cache keeps the result.

        They are part of the published training set, so nothing is said of their novelty.
        """
        texts = held_out_molecules(self.cache, self.n)
        identity = json.dumps([self.protocol(), text_hash(texts)])
        name = f"held-out-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
        path = self.cache / NAME / name
        if path.is_file():
            kept: dict[str, Score] = parse_json(path.read_bytes(), str(path))
            return kept
        self.tell("measuring held-out molecules")
        scores = self.benchmark.measure(texts, tell=self.tell)
        del scores["novel"]
        write_text(path, json.dumps(scores))
        return scores


def held_out_molecules(cache: Path, n: int) -> list[str]:
    """Return so many molecules spread over the validation split, or all of it."""
    every = list(moses.published("train", cache / "downloads", lambda *_: None))[:: moses.EVERY]
    n = min(n, len(every))
    return [every[i * len(every) // n].decode() for i in range(n)]
