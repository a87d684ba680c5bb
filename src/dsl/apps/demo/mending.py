"""Mend a text of which some letters are doubtful: every letter is evidence, gaps are unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsl._util.validate import probability
from dsl._util.validate import text as require_text
from dsl.checkpoints import Model, load
from dsl.conditioning import Confident, Hint, Unknown
from dsl.generation import SampleOptions, completion, ended, walk

DEFAULT_MODEL = "english-tiny"
GAP = "_"
"""What stands for a letter that could not be made out."""
ALTERNATIVES = 3
"""Letters that are named beside the chosen one."""


@dataclass(frozen=True)
class Mended:
    """A doubtful text: what was read, how sure the reader was, and what it became."""

    read: str
    confidence: Sequence[float]
    """0 is a gap."""
    repaired: str
    posterior: Sequence[float]
    """P(repaired letter | all that was read), of each position, before any letter was decided."""
    alternatives: Sequence[Sequence[tuple[str, float]]]
    """The likeliest other letters of each position under the same posterior."""

    def __post_init__(self) -> None:
        columns = (
            self.read, self.confidence, self.repaired, self.posterior, self.alternatives
        )  # fmt: skip
        lengths = {len(column) for column in columns}
        assert len(lengths) == 1, f"one entry for each position, got {sorted(lengths)}"

    def changes(self) -> list[int]:
        """List the positions, from 0, that were a gap or hold another letter now."""
        pairs = zip(self.read, self.confidence, self.repaired, strict=True)
        return [i for i, (was, sure, now) in enumerate(pairs) if sure == 0 or was != now]


def mend(
    read: str,
    confidence: Sequence[float],
    model: str | Path | Model = DEFAULT_MODEL,
    *,
    sampler: str = "roar:temperature=0",
    seed: int = 0,
) -> Mended:
    """Decide every letter, the reader's confidence weighed against what the model knows.

    Args:
        read: What was read, `_` where nothing could be made out. Every letter is one token.
        confidence: The probability that each letter was read rightly.
        model: A model with continuous states, or its name.
        sampler: The path along which letters are decided.
        seed: Where the random numbers start.
    """
    require_text("read", read)
    if len(confidence) != len(read):
        raise ValueError(
            f"confidence must have a number for each of the {len(read)} letters, "
            f"got {len(confidence)}"
        )
    model = model if isinstance(model, Model) else load(model, length=len(read))
    sure = [
        0.0 if letter == GAP else probability("confidence", p)
        for letter, p in zip(read, confidence, strict=True)
    ]
    hints: list[Hint] = [
        Unknown() if letter == GAP else Confident(_token(model, letter), p)
        for letter, p in zip(read, sure, strict=True)
    ]
    row = ended(model, hints, "here" if model.documents else "unknown")
    begin = len(model.ends[0]) if model.documents else 0
    own = slice(begin, begin + len(hints))
    request = completion(model, SampleOptions(sampler=sampler, seed=seed), hints=[row])
    batch = next(request.batches())
    # The state of the start: once a letter is decided, the posterior of the others has changed.
    posterior = batch.denoiser(batch.start.endpoints)[0, own].double().softmax(dim=-1)
    state = walk(batch)
    tokens = state.tokens[0, own].tolist()
    chosen = [float(p[token]) for p, token in zip(posterior, tokens, strict=True)]
    others = [
        [(model.decode([v]), float(p[v])) for v in p.argsort(descending=True).tolist() if v != t]
        for p, t in zip(posterior, tokens, strict=True)
    ]
    best = [letters[:ALTERNATIVES] for letters in others]
    return Mended(read, sure, model.decode(tokens), chosen, best)


def _token(model: Model, letter: str) -> int:
    ids = model.encode(letter)
    if len(ids) != 1:
        raise ValueError(
            f"letters are mended one by one, which needs a token for each; {model.name} has "
            f"{len(ids)} for {letter!r}"
        )
    return ids[0]
