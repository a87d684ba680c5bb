"""What a number depends on, so that numbers of different kinds are not put side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

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
"""What is measured of texts, in the order of tables, and what it is called there."""

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
"""The same of molecules."""

MEASURES = TEXTS | MOLECULES

LIBRARIES = ("torch", "transformers", "mauve-text", "faiss-cpu", "torchmetrics")


def text_hash(texts: Sequence[str]) -> str:
    """Name a list of texts."""
    hasher = hashlib.sha256()
    for text in texts:
        hasher.update(text.encode() + b"\0")
    return hasher.hexdigest()[:16]


def versions(libraries: Sequence[str] = LIBRARIES) -> dict[str, str]:
    """Return the versions of what takes part in an evaluation and is installed."""
    found = {}
    for name in libraries:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Say in which points two protocols differ; seeds and versions are part of them."""
    keys = sorted(set(one) | set(other))
    return [
        f"{key}: {one.get(key)!r} and {other.get(key)!r}"
        for key in keys
        if one.get(key) != other.get(key)
    ]


def require_same(protocols: Mapping[str, Mapping[str, Any]], *, force: bool = False) -> None:
    """Refuse to compare results whose protocols differ, unless forced."""
    names = list(protocols)
    for name in names[1:]:
        found = differences(protocols[names[0]], protocols[name])
        if found and not force:
            raise ValueError(
                f"{names[0]} and {name} were measured by different protocols "
                f"({'; '.join(found)}); --force compares them all the same"
            )
