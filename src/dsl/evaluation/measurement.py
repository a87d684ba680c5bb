"""Measure samples against real text: prepare corpus, judges and reference, then run the suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsl._util.registry import Registry
from dsl.checkpoints.loading import Model, load
from dsl.data.catalogue import origin_of
from dsl.data.corpora import SPLITS, prepare
from dsl.data.sources import default_cache
from dsl.evaluation.judges import fetch, require_judge
from dsl.evaluation.settings import JudgeSettings
from dsl.evaluation.suite import Measure, Reference, Settings
from dsl.generation.samples import read

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark with measures and references of its own, chosen by `--judge NAME`."""

    check: Callable[[JudgeSettings], None]
    """Raises an error for settings that the benchmark cannot use."""
    build: Callable[[JudgeSettings, Model, int, Path, Tell], Any]
    """Returns a measure for n samples of a model; gets the cache directory and a callback."""


BENCHMARKS: Registry[Benchmark] = Registry("dsl.benchmarks", "benchmark")


def require_known(settings: JudgeSettings) -> None:
    """Raise an error for an unknown corpus, split or judge."""
    if settings.judge in BENCHMARKS:
        BENCHMARKS[settings.judge].check(settings)
        return
    splits = origin_of(settings.reference).splits or SPLITS
    if settings.split not in splits:
        raise ValueError(
            f"corpus {settings.reference!r} has no split {settings.split!r}; "
            f"expected one of {', '.join(splits)}"
        )
    for name in (settings.features, settings.judge):
        if name != "none":
            require_judge(name)


def build(settings: JudgeSettings, model: Model, n: int, length: int, tell: Tell) -> Any:
    """Prepare corpus, judges and reference for n samples of a length."""
    cache = settings.cache or default_cache()
    if settings.judge in BENCHMARKS:
        return BENCHMARKS[settings.judge].build(settings, model, n, cache, tell)

    def folder(name: str) -> Path | None:
        return None if name == "none" else fetch(name, cache, on_progress=lambda w, *_: tell(w))

    corpus = prepare(settings.reference, cache, on_progress=lambda what, *_: tell(what))
    measured = Settings(
        folder(settings.features),
        folder(settings.judge),
        novelty=settings.novelty,
        seeds=settings.seeds,
        resamples=settings.resamples,
        buckets=settings.buckets,
        device=settings.device,
    )
    if model.tokenizer is None:
        raise ValueError(f"{model.name} has no tokenizer, so it cannot read the reference")
    tell("reading the training text")
    reference = Reference.cut(
        corpus,
        settings.split,
        n,
        length,
        model.tokenizer,
        documents=model.documents,
        share=model.share,
    )
    reference = reference.with_training(corpus, model.tokenizer)
    return Measure(
        measured, reference, model.tokenizer, documents=model.documents, cache=cache, tell=tell
    )


def evaluate(
    samples: str | Path,
    settings: JudgeSettings,
    *,
    model: str | Path | Model | None = None,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Measure a samples file, and held-out real text for comparison.

    Args:
        samples: A file written by `dsl sample`.
        settings: The reference and the judges.
        model: Model whose tokenizer counts tokens. Default: the model of the samples.
        tell: Called with a note about the current work.
    """
    settings.check()
    require_known(settings)
    about, drawn = read(Path(samples))
    if not drawn:
        raise ValueError(f"{samples} has no samples")
    if not isinstance(model, Model):
        name, length = model or about.get("model"), about.get("length")
        if not isinstance(name, str | Path) or not isinstance(length, int | None):
            raise ValueError(f"{samples} does not name its model and length; pass a model")
        model = load(name, length=length)
    largest = max((max(sample.tokens) for sample in drawn if sample.tokens), default=0)
    if largest >= model.vocab_size:
        raise ValueError(
            f"{samples} has a token {largest}, but {model.name} has only {model.vocab_size} tokens"
        )
    measure = build(settings, model, len(drawn), len(drawn[0].tokens), tell)
    measured: dict[str, Any] = measure.samples(drawn, about)
    return measured
