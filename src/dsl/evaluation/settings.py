"""The settings of judges; nothing here imports torch, so that help is quick."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dsl._util.registry import Registry
from dsl._util.validate import within


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """The reference text and the judges of samples."""

    reference: str = ""
    """The real text: a corpus name (see `dsl data`) or a file. Not needed with --judge moses."""
    split: str = "test"
    """Split of the reference corpus."""
    features: str = "minilm"
    """MAUVE's feature model: minilm, a directory such as GPT-2 Large's, or none."""
    judge: str = "smollm2"
    """GenPPL's language model: smollm2, a directory such as GPT-2 Large's, a causal model of
    this package such as teacher:stories15M, or none; moses measures molecules instead of text."""
    buckets: int | None = None
    """K-means clusters of MAUVE. Default: a tenth of the samples."""
    seeds: int = 3
    """K-means seeds of MAUVE."""
    resamples: int = 5
    """Bootstrap resamples of MAUVE, and of distances between sets of molecules."""
    novelty: int = 16
    """Length of the n-grams for novelty, in tokens."""
    device: str = "cpu"
    """Device of the networks, such as cuda:0."""
    cache: Path | None = None
    """Cache directory for corpora, judges and features."""

    def check(self) -> None:
        """Refuse values that no run can have."""
        within(self, seeds=(1, 1000), resamples=(0, 10**4), novelty=(1, 10**6))
        within(self, buckets=(1, 10**6))
        if not self.reference and self.judge not in Registry("dsl.benchmarks", "benchmark"):
            raise ValueError("name the corpus of real text, such as --reference text8-prefix")
