"""All measures of a set of samples, and of held-out real text for comparison."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from tokenizers import Tokenizer

from dsl._util.files import whole
from dsl.data.corpora import BETWEEN, Corpus
from dsl.data.document_ends import document
from dsl.data.documents import Kind, blocks
from dsl.data.tokenizers import decode, ends
from dsl.data.windows import tokenise
from dsl.evaluation import diversity
from dsl.evaluation.judges import Judge, Teacher, digest, is_ours
from dsl.evaluation.mauve import PAPER_SEED, mauve
from dsl.generation.samples import Sample
from dsl.likelihoods.estimate import Mean
from dsl.version import __version__

TEXTS = {
    "mauve": "MAUVE",
    "judged_nats": "nats per token by the teacher",
    "genppl": "GenPPL",
    "judged_bits": "bits per character by the language model",
    "sentence_entropy": "sentence entropy (nats)",
    "repetition": "repeated 4-grams",
    "distinct": "distinct 4-grams",
    "novelty": "novel n-grams",
    "known_words": "words of the training text",
    "end_rate": "samples with an end",
    "empty": "samples without text",
}
"""Measures of texts and their names in tables, in order."""

MOLECULES = {
    "valid": "valid",
    "unique_1k": "unique@1k",
    "unique_10k": "unique@10k",
    "novel": "novel",
    "filters": "passed filters",
    "int_div": "IntDiv",
    "int_div2": "IntDiv2",
    "fcd_test": "FCD, test",
    "fcd_scaffold": "FCD, scaffold-test",
    "snn_test": "SNN, test",
    "snn_scaffold": "SNN, scaffold-test",
    "frag_test": "Frag, test",
    "frag_scaffold": "Frag, scaffold-test",
    "scaf_test": "Scaf, test",
    "scaf_scaffold": "Scaf, scaffold-test",
    "logp_test": "logP, distance",
    "sa_test": "SA, distance",
    "qed_test": "QED, distance",
    "weight_test": "weight, distance",
}
"""Measures of molecules."""

MEASURES = TEXTS | MOLECULES

LIBRARIES = ("torch", "transformers", "mauve-text", "faiss-cpu")


def text_hash(texts: Sequence[str]) -> str:
    """Return a hash of a list of texts."""
    hasher = hashlib.sha256()
    for text in texts:
        hasher.update(text.encode() + b"\0")
    return hasher.hexdigest()[:16]


def versions(libraries: Sequence[str] = LIBRARIES) -> dict[str, str]:
    """Return the versions of installed libraries that an evaluation uses."""
    found = {}
    for name in libraries:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """List the differences between two protocols, including seeds and versions."""
    keys = sorted(set(one) | set(other))
    return [
        f"{key}: {one.get(key)!r} and {other.get(key)!r}"
        for key in keys
        if one.get(key) != other.get(key)
    ]


def require_same(protocols: Mapping[str, Mapping[str, Any]], *, force: bool = False) -> None:
    """Raise an error if protocols differ, unless forced."""
    names = list(protocols)
    for name in names[1:]:
        found = differences(protocols[names[0]], protocols[name])
        if found and not force:
            raise ValueError(
                f"{names[0]} and {name} were measured with different protocols "
                f"({'; '.join(found)}); --force compares them anyway"
            )


@dataclass(frozen=True)
class Settings:
    """The measures and their settings."""

    features: Path | None = None
    """Directory of MAUVE's feature model; None omits MAUVE."""
    judge: Path | None = None
    """Directory of GenPPL's language model; None omits GenPPL."""
    ngram: int = 4
    """Tokens in an n-gram of repetition and distinctness."""
    novelty: int = 16
    """Tokens in an n-gram of novelty."""
    seeds: int = 3
    """K-means seeds, from the paper's 25 upwards."""
    resamples: int = 5
    """Bootstrap resamples of MAUVE."""
    buckets: int | None = None
    """K-means clusters. Default: a tenth of the samples."""
    most: int = 1024
    """Maximum number of tokens that a judge reads of a text."""
    device: str = "cpu"
    """Device of the judges."""


@dataclass(frozen=True, eq=False)
class Reference:
    """Real text, cut like the samples: one half as the reference, the other to be measured."""

    name: str
    texts: list[str]
    held_out: list[str]
    training: np.ndarray | None = None
    """Training tokens, for novelty."""
    vocabulary: frozenset[str] | None = None
    """Training words, for the share of real words."""
    held_out_tokens: list[list[int]] | None = None
    """Tokens of the held-out texts. Default: the texts are encoded."""

    @classmethod
    def cut(
        cls,
        corpus: Corpus,
        split: str,
        n: int,
        length: int,
        tokenizer: Tokenizer,
        *,
        documents: bool = False,
        share: bool = False,
    ) -> Reference:
        """Take 2n blocks spread evenly over a split, alternately for each half.

        They have the special tokens of the model's blocks, as its samples do. The text of a block
        of documents is the first document.
        """
        tokens, about = tokenise(corpus, split, tokenizer), ends(tokenizer)
        kind: Kind = "documents" if documents else "wrap"
        rows = blocks(corpus, tokens, length, kind, ends=about, share=share).spread(2 * n)
        if len(rows) < 2 * n:
            raise ValueError(
                f"{2 * n} blocks of {length} tokens do not fit into the {len(tokens)} tokens of "
                f"{corpus.name}'s {split} split"
            )
        listed = rows.tolist()
        words = [document(row, about) for row in listed] if documents else listed
        texts = [decode(tokenizer, row) for row in words]
        judged = listed[1::2] if documents else None
        return cls(f"{corpus.name}/{split}", texts[0::2], texts[1::2], held_out_tokens=judged)

    def with_training(self, corpus: Corpus, tokenizer: Tokenizer) -> Reference:
        """Add the tokens and words of the training split."""
        words: set[str] = set()
        for piece in corpus.pieces("train", 1 << 22):
            words.update(piece.replace(BETWEEN, b" ").decode("utf-8", errors="ignore").split())
        tokens = tokenise(corpus, "train", tokenizer)
        return replace(self, training=tokens, vocabulary=frozenset(words))


class Measure:
    """Measures texts with one protocol; judges are loaded once and features are cached."""

    def __init__(
        self,
        settings: Settings,
        reference: Reference,
        tokenizer: Tokenizer,
        *,
        documents: bool = False,
        cache: Path | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not reference.texts:
            raise ValueError("the reference needs at least one text, got none")
        self.settings, self.reference, self.tokenizer = settings, reference, tokenizer
        self.ends, self.documents = ends(tokenizer), documents
        self.cache, self.tell = cache, tell
        self._judges: dict[Path, Judge] = {}
        self._taught: Teacher | None = None
        self._held_out: dict[str, Any] | None = None
        self._seen: diversity.Seen | None = None

    def protocol(self) -> dict[str, Any]:
        """Return everything that a result depends on except the samples."""
        return self._protocol

    @cached_property
    def _protocol(self) -> dict[str, Any]:
        settings = asdict(self.settings)
        del settings["device"]  # results should not depend on the device
        for name in ("features", "judge"):
            folder: Path | None = settings[name]
            settings[name] = None if folder is None else f"{folder.name} {digest(folder)}"
        return {
            "dsl": __version__,
            "reference": f"{self.reference.name} {text_hash(self.reference.texts)}",
            "reference_texts": len(self.reference.texts),
            "tokenizer": text_hash([self.tokenizer.to_str()]),
            "mauve_seed": PAPER_SEED,
            **({"documents": True} if self.documents else {}),
            **settings,
            "versions": versions(),
        }

    def samples(self, samples: Sequence[Sample], about: Mapping[str, Any]) -> dict[str, Any]:
        """Measure samples and the held-out text."""
        if not samples:
            raise ValueError("measuring needs at least one sample, got none")
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
        """Measure the held-out text, once."""
        if self._held_out is None:
            texts = self.reference.held_out
            rows = self.reference.held_out_tokens
            if rows is None:
                rows = [self.tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
            self._held_out = self.texts(texts, rows)
        return self._held_out

    def texts(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Measure texts given with their tokens; documents count up to their end."""
        n = self.settings.ngram
        ended = [self._ended(row) for row in ids]
        rows = [document(row, self.ends) for row in ids] if self.documents else ids
        scores: dict[str, Any] = {
            "sentence_entropy": _mean([diversity.sentence_entropy(row) for row in rows]),
            "repetition": _mean([diversity.repetition(row, n) for row in rows]),
            "distinct": {"mean": diversity.distinct(rows, n)},
        }
        if self.ends[1]:
            scores["end_rate"] = _mean([float(found) for found in ended])
        if self.documents:
            scores["empty"] = _mean([float(not text) for text in texts])
        if self.reference.training is not None:
            if self._seen is None:
                self.tell("sorting the training text's n-grams")
                self._seen = diversity.Seen(self.reference.training, self.settings.novelty)
            scores["novelty"] = _mean(self._seen.novelty(rows))
        if (words := self.reference.vocabulary) is not None:
            edges = [(self.documents, self.documents and found) for found in ended]
            pairs = zip(texts, edges, strict=True)
            known = [diversity.known_words(text, words, whole=edge) for text, edge in pairs]
            scores["known_words"] = _mean(known)
        said = [pair for pair in zip(texts, ids, strict=True) if pair[0] or not self.documents]
        scores |= self._judged([text for text, _ in said], [row for _, row in said])
        return {name: _finite(score) for name, score in scores.items()}

    def _ended(self, row: Sequence[int]) -> bool:
        """Whether a text ends inside its block; the last position of a window is always an end."""
        inside = row[len(self.ends[0]) :] if self.documents else row[1:-1]
        return not set(self.ends[1]).isdisjoint(inside)

    def _judged(self, texts: Sequence[str], ids: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Return the scores of the pretrained models; empty texts must be left out."""
        scores: dict[str, Any] = {}
        if not texts and (self.settings.judge or self.settings.features):
            raise ValueError("judges need at least one text that is not empty, got none")
        if self.settings.judge is not None:
            self.tell("scoring with the language model")
            if is_ours(self.settings.judge):
                teacher = self._teacher(self.settings.judge)
                scored = teacher.score(texts, ids, self.tokenizer)
                scores["judged_nats"] = scored.nats_per_token().to_dict()
            else:
                scored = self._judge(self.settings.judge).score(texts, most=self.settings.most)
            scores["genppl"] = scored.perplexity().to_dict()
            scores["judged_bits"] = scored.bits_per_character().to_dict()
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
        return scores

    def _teacher(self, folder: Path) -> Teacher:
        if self._taught is None:
            self._taught = Teacher.load(folder, device=self.settings.device)
        return self._taught

    def _judge(self, folder: Path) -> Judge:
        if folder not in self._judges:
            self.tell(f"loading {folder.name}")
            self._judges[folder] = Judge.load(folder, device=self.settings.device)
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
            with whole(kept) as part:
                np.save(part, found)
        return found


def _mean(values: Sequence[float]) -> dict[str, float | None]:
    """Average values without NaN, which stands for texts that are too short."""
    return Mean.of([value for value in values if not math.isnan(value)]).to_dict()


def _finite(value: Any) -> Any:
    """Replace NaN and infinity by None, for JSON."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
