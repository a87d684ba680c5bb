"""All measures of a set of samples, and the same measures of held-out real text beside them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from tokenizers import Tokenizer

import dsl
from dsl.data.corpora import BETWEEN, Corpus
from dsl.data.tokenizers import decode, ends
from dsl.data.windows import Windows, tokenise
from dsl.evaluation import diversity
from dsl.evaluation.mauve import PAPER_SEED, mauve
from dsl.evaluation.oracles import Judge, digest
from dsl.evaluation.protocol import text_hash, versions
from dsl.samples import Sample


@dataclass(frozen=True)
class Settings:
    """What is measured, and how."""

    features: Path | None = None
    """The directory of the model whose features MAUVE compares; None leaves MAUVE out."""
    oracle: Path | None = None
    """The directory of the language model of GenPPL; None leaves it out."""
    ngram: int = 4
    """Tokens in an n-gram of repetition and distinctness."""
    novelty: int = 16
    """Tokens in an n-gram of novelty."""
    seeds: int = 3
    """K-means seeds, from the paper's 25 upwards."""
    resamples: int = 5
    """Bootstrap resamples of MAUVE."""
    buckets: int | None = None
    """K-means clusters; a tenth of the samples if not given."""
    most: int = 1024
    """The most tokens a judge reads of a text."""


@dataclass(frozen=True, eq=False)
class Reference:
    """Real text, cut like the samples: one half to compare with, the other to be judged too."""

    name: str
    texts: list[str]
    held_out: list[str]
    training: np.ndarray | None = None
    """Training tokens, for novelty."""
    vocabulary: frozenset[str] | None = None
    """Training words, for the share of real words."""

    @classmethod
    def cut(
        cls, corpus: Corpus, split: str, n: int, length: int, tokenizer: Tokenizer
    ) -> Reference:
        """Take 2n blocks of so many tokens, spread evenly over a split, in turn for each half.

        They begin and end with the specials that the model's blocks have, as its samples do.
        """
        tokens = tokenise(corpus, split, tokenizer)
        rows = Windows(tokens, length, ends=ends(tokenizer)).spread(2 * n)
        if len(rows) < 2 * n:
            raise ValueError(
                f"{2 * n} blocks of {length} tokens do not fit into the {len(tokens)} of "
                f"{corpus.name}'s {split} split"
            )
        texts = [decode(tokenizer, row) for row in rows.tolist()]
        return cls(f"{corpus.name}/{split}", texts[0::2], texts[1::2])

    def with_training(self, corpus: Corpus, tokenizer: Tokenizer) -> Reference:
        """Remember the training split's tokens and words."""
        words: set[str] = set()
        for piece in corpus.pieces("train", 1 << 22):
            words.update(piece.replace(BETWEEN, b" ").decode("utf-8", errors="ignore").split())
        tokens = tokenise(corpus, "train", tokenizer)
        return replace(self, training=tokens, vocabulary=frozenset(words))


class Measure:
    """Measures lists of texts by one protocol; judges are loaded once and features kept."""

    def __init__(
        self,
        settings: Settings,
        reference: Reference,
        tokenizer: Tokenizer,
        *,
        cache: Path | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not reference.texts:
            raise ValueError("the reference has no texts")
        self.settings, self.reference, self.tokenizer = settings, reference, tokenizer
        self.ends = frozenset(ends(tokenizer)[1])
        self.cache, self.tell = cache, tell
        self._judges: dict[Path, Judge] = {}
        self._held_out: dict[str, Any] | None = None
        self._seen: diversity.Seen | None = None

    def protocol(self) -> dict[str, Any]:
        """Return everything a number depends on but the samples themselves."""
        settings = asdict(self.settings)
        for name in ("features", "oracle"):
            folder: Path | None = settings[name]
            settings[name] = None if folder is None else f"{folder.name} {digest(folder)}"
        return {
            "dsl": dsl.__version__,
            "reference": f"{self.reference.name} {text_hash(self.reference.texts)}",
            "reference_texts": len(self.reference.texts),
            "tokenizer": text_hash([self.tokenizer.to_str()]),
            "mauve_seed": PAPER_SEED,
            **settings,
            "versions": versions(),
        }

    def samples(self, samples: Sequence[Sample], about: Mapping[str, Any]) -> dict[str, Any]:
        """Measure samples, and put the held-out text beside them."""
        if not samples:
            raise ValueError("there are no samples to measure")
        texts = [sample.text for sample in samples]
        nfe = _mean([float(sample.nfe) for sample in samples])
        seconds = sum(sample.seconds for sample in samples)
        tokens = sum(len(sample.tokens) for sample in samples)
        return {
            "samples": len(samples),
            "samples_hash": text_hash(texts),
            "about": dict(about),
            "protocol": self.protocol(),
            "nfe": nfe,
            "tokens_per_second": tokens / seconds if seconds else None,
            "scores": self.texts(texts, [sample.tokens for sample in samples]),
            "held_out": self.held_out(),
        }

    def held_out(self) -> dict[str, Any]:
        """Measure real text that the reference does not contain, once."""
        if self._held_out is None:
            texts = self.reference.held_out
            rows = [self.tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
            self._held_out = self.texts(texts, rows)
        return self._held_out

    def texts(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Measure texts given with their tokens."""
        n = self.settings.ngram
        scores: dict[str, Any] = {
            "sentence_entropy": _mean([diversity.sentence_entropy(row) for row in ids]),
            "repetition": _mean([diversity.repetition(row, n) for row in ids]),
            "distinct": {"mean": diversity.distinct(ids, n)},
        }
        if self.ends:
            # an end inside the block: the last place has one by construction
            inside = [not self.ends.isdisjoint(row[1:-1]) for row in ids]
            scores["end_rate"] = _mean([float(found) for found in inside])
        if self.reference.training is not None:
            if self._seen is None:
                self.tell("sorting the training text's n-grams")
                self._seen = diversity.Seen(self.reference.training, self.settings.novelty)
            scores["novelty"] = _mean(self._seen.novelty(ids))
        if self.reference.vocabulary is not None:
            known = [diversity.known_words(text, self.reference.vocabulary) for text in texts]
            scores["known_words"] = _mean(known)
        if self.settings.oracle is not None:
            self.tell("scoring with the language model")
            scored = self._judge(self.settings.oracle).score(texts, most=self.settings.most)
            for name, value in (
                ("genppl", scored.perplexity()),
                ("judged_bits", scored.bits_per_character()),
            ):
                scores[name] = dict(zip(("mean", "stderr"), value, strict=True))
        if self.settings.features is not None:
            p, q = self._features(self.reference.texts), self._features(texts)
            self.tell("clustering")
            found = mauve(
                p,
                q,
                buckets=self.settings.buckets,
                seeds=self.settings.seeds,
                resamples=self.settings.resamples,
            )
            scores["mauve"] = {"mean": found.value, **asdict(found)}
        return {name: _finite(score) for name, score in scores.items()}

    def _judge(self, folder: Path) -> Judge:
        if folder not in self._judges:
            self.tell(f"loading {folder.name}")
            self._judges[folder] = Judge.load(folder)
        return self._judges[folder]

    def _features(self, texts: Sequence[str]) -> Float[np.ndarray, "n h"]:
        folder = self.settings.features
        assert folder is not None
        kept = None
        if self.cache is not None:
            name = f"{digest(folder)}-{self.settings.most}-{text_hash(texts)}.npy"
            kept = self.cache / "features" / name
            if kept.is_file():
                loaded: np.ndarray = np.load(kept)
                return loaded
        self.tell("taking features")
        found = self._judge(folder).features(texts, most=self.settings.most)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_suffix(f".{os.getpid()}.part.npy")
            np.save(part, found)
            os.replace(part, kept)
        return found


def _mean(values: Sequence[float]) -> dict[str, float | None]:
    """Average with its standard error, leaving out texts too short to say."""
    good = torch.tensor([v for v in values if not math.isnan(v)], dtype=torch.float64)
    if not len(good):
        return {"mean": None, "stderr": None}
    stderr = float(good.std()) / math.sqrt(len(good)) if len(good) > 1 else None
    return {"mean": float(good.mean()), "stderr": stderr}


def _finite(value: Any) -> Any:
    """Turn what JSON cannot say into null."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
