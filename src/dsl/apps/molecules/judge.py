"""`--judge moses`: samples of a model as molecules, beside molecules that it was not trained on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from dsl._util.extras import require
from dsl._util.files import parse_json, write_text
from dsl.apps.molecules import corpus as moses
from dsl.apps.molecules import published
from dsl.apps.molecules.chemistry import EXTRA
from dsl.apps.molecules.measure import Benchmark, Score, mean_of, warnings
from dsl.checkpoints import Model
from dsl.data import decode, document, ends
from dsl.evaluation import Benchmark as Registered
from dsl.evaluation import JudgeSettings, text_hash, versions
from dsl.generation import Sample
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


def _check(settings: JudgeSettings) -> None:
    """Refuse another reference, and a machine without the extra."""
    if settings.reference not in ("", NAME):
        raise ValueError(
            f"--judge {NAME} has a reference of its own and takes no other, got "
            f"{settings.reference!r}"
        )
    for module in ("rdkit", "fcd", "scipy"):
        require(module, extra=EXTRA)


def _build(settings: JudgeSettings, model: Model, n: int, cache: Path, tell: Tell) -> Any:
    """Prepare MOSES for n samples of a model."""
    if model.tokenizer is None:
        raise ValueError(f"{model.name} has no tokenizer, so its samples cannot be read")
    found = benchmark(cache, resamples=settings.resamples, device=settings.device, tell=tell)
    return MoleculeMeasure(found, model.tokenizer, n, cache=cache, tell=tell)


MOSES = Registered(_check, _build)
