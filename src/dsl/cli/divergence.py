"""`dsl divergence`: how far a model is from the source of its corpus, in both directions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro

from dsl.arguments import SEEDS, within
from dsl.cli.options import parse


@dataclass(frozen=True)
class DivergenceOptions:
    """Find KL(source || model) and KL(model || source), in nats per token.

    The source is a causal model whose texts the corpus holds, so that the probability of every text
    is known; the model is asked from left to right, a call for each token. The first is large where
    the model leaves out what the source writes, the second where it writes what the source would
    not.
    """

    model: tyro.conf.Positional[str]
    """A bundled model such as stories-tiny, a checkpoint directory or a hub id."""
    corpus: tyro.conf.Positional[str]
    """A corpus that was drawn from the source, such as stories-2560."""
    source: str = "teacher:stories15M"
    """The source: a causal model with the same tokens."""
    limit: int = 16
    """Texts from each of the two."""
    seed: int = 0
    """Where the random numbers start."""
    json: bool = False
    """Print JSON instead of sentences."""
    device: str = "cpu"
    """Where the networks run, such as cuda:0."""
    cache: Path | None = None
    """Where corpora are kept."""

    def check(self) -> None:
        """Refuse values that no run can have."""
        within(self, limit=(2, 10**6), seed=SEEDS)


def main(arguments: Sequence[str]) -> None:
    """Load, ask both, print."""
    options = parse(DivergenceOptions, "divergence", arguments)
    from dsl.cli.progress import progress
    from dsl.data.cache import default_cache
    from dsl.evaluation.divergence import divergence
    from dsl.evaluation.teacher import Teacher
    from dsl.loading import load
    from dsl.scoring.blocks import read

    model = load(options.model, device=options.device)
    source = Teacher.of(load(options.source, device=options.device))
    cache = options.cache or default_cache()
    texts, _ = read(model, options.corpus, "test", model.length, options.limit, cache)
    with progress(2 * len(texts), "reading and writing texts") as bar:
        found = divergence(model, source, texts, seed=options.seed, told=bar.advance)
    if options.json:
        about: dict[str, object] = {"model": model.name, "source": source.model.name}
        about |= {"corpus": options.corpus, "texts": len(texts), "seed": options.seed}
        print(json.dumps({**about, **asdict(found)}))
        return
    for name, mean in (("source || model", found.forward), ("model || source", found.reverse)):
        print(f"KL({name}) = {mean.mean:.3f} ± {mean.stderr:.3f} nats per token")
    print(f"{len(texts)} texts of each, the model from left to right, seed {options.seed}")
