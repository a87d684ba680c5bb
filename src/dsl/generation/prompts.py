"""What is known about a text, as hints: a prompt, gaps, plain data, the end of a document."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from dsl._util.config import cut, shown
from dsl._util.validate import finite_number, probability, sequence
from dsl.checkpoints.loading import Model
from dsl.conditioning.hints import (
    Allowed,
    Confident,
    Hint,
    Hints,
    Known,
    NBest,
    Observed,
    Unknown,
)
from dsl.generation.options import Ending

GAP = re.compile(r"\[(\d+)\]", re.ASCII)
LONGEST_GAP = 1_000_000
BRACKETED = re.compile(r"\[[^\[\]]*\]")


def prompted(model: Model, prompt: str, length: int, suffix: str = "") -> list[Hint]:
    """Return hints for a sequence that begins with a prompt and ends with a suffix."""
    for text in (prompt, suffix):
        require_room(model, text, length)
    before = [*_opening(model), *model.encode(prompt)] if prompt else []
    after = model.encode(suffix, inside=True) if suffix else []
    gap = length - len(before) - len(after)
    if gap < 0:
        given = "prompt and suffix have" if suffix else "the prompt has"
        raise ValueError(f"{given} {length - gap} tokens, the sequence only {length}")
    return [*map(Known, before), *[Unknown()] * gap, *map(Known, after)]


def ended(model: Model, hints: Sequence[Hint], ending: Ending = "unknown") -> list[Hint]:
    """Add what follows a document's text: its end, room for a continuation, or nothing.

    Padding follows the end up to the model's length, unless documents shared blocks in training.
    Hints for other models are returned unchanged.
    """
    if not model.documents:
        if ending != "unknown":
            raise ValueError(
                f"{model.name} was not trained on documents, so its texts have no end: "
                f"ending must be 'unknown', got {ending!r}"
            )
        return list(hints)
    assert model.end is not None
    begun = [*map(Known, _opening(model)), *hints]
    room = max(0, model.length - len(begun))
    if ending == "open":
        return [*begun, *[Unknown()] * room]
    if ending == "here":
        return [*begun, *[Known(model.end)] * (min(1, room) if model.share else room)]
    return begun


def padding_after(model: Model, length: int, ending: Ending = "unknown") -> int:
    """Count the masked tokens that follow a text of this length."""
    return max(0, model.length - length) if model.documents and ending == "unknown" else 0


def _opening(model: Model) -> list[int]:
    """Return the special tokens that the model's documents begin with."""
    return model.ends[0] if model.documents else []


def parse_gaps(model: Model, text: str) -> list[Hint]:
    """Turn a text with gaps into hints.

    If word tokens include the space before them, a space before a gap belongs to the gap.
    """
    hints: list[Hint] = []
    parts = re.split(r"(\[[0-9]+\])", text)
    for place, part in enumerate(parts):
        if place + 1 < len(parts) and part.endswith(" ") and model.spaced:
            part = part[:-1]
        if gap := GAP.fullmatch(part):
            hints += [Unknown()] * gap_size(gap[1], model.length)
        elif part:
            require_room(model, part, model.length)
            if (other := BRACKETED.search(part)) and not model.can_say(other[0]):
                got = cut(" ".join(other[0].split()))
                raise ValueError(f"a gap is written as its length, such as [12]; got {got}")
            hints += [Known(token) for token in model.encode(part, inside=bool(hints))]
        if len(hints) > model.length:  # before reading on: the text may be long
            model.require_length(len(hints))
    if not any(isinstance(hint, Unknown) for hint in hints):
        raise ValueError(f"the text has no gap: write one as [12], got {shown(text)}")
    return hints


def hint_rows(hints: Any) -> Sequence[Any]:
    """Return the rows of hints: a batch is a list of lists, anything else is a single row."""
    if not sequence("hints", hints, "hints, one for each position"):
        raise ValueError("hints must describe at least one position, got none")
    return hints if all(isinstance(row, list) for row in hints) else [hints]


def read_hints(model: Model, data: Any) -> list[Hints]:
    """Read one row of hints, or a list of rows; each row has one entry per position.

    An entry is a hint object, plain data (the form of `dsl sample --hints FILE`), or a list of
    these, which add up:

    - null: unknown
    - "a": the token with this text, leading space included
    - {"token": "a", "confidence": 0.8}: read with this probability of being right
    - {"token": "a", "snr": 2.0}: observed through the channel
    - {"allowed": ["a", "b"]}: one of these
    - {"n_best": {"a": 0.6, "b": 0.3}}: candidates; all other tokens share the remaining mass
    """
    tokens: dict[str, int] = {}

    def token(text: Any) -> int:
        if not isinstance(text, str):
            raise ValueError(f"a token must be written as text, got {shown(text)}")
        if text not in tokens:
            ids = model.encode(text, inside=True)
            if len(ids) != 1:
                raise ValueError(
                    f"{shown(text)} must be one token of {model.name}, got {len(ids)} tokens"
                )
            tokens[text] = ids[0]
        return tokens[text]

    def several(entry: Any) -> Any:
        if isinstance(entry, list | tuple):
            return tuple(one(each) for each in entry)
        return one(entry)

    def one(entry: Any) -> Hint:
        if isinstance(entry, get_args(Hint)):
            return entry  # type: ignore[no-any-return]
        if entry is None:
            return Unknown()
        if isinstance(entry, str):
            return Known(token(entry))
        match entry:
            case {"token": text, "confidence": confidence, **rest} if not rest:
                return Confident(token(text), probability("confidence", confidence))
            case {"token": text, "snr": snr, **rest} if not rest:
                return Observed(token(text), finite_number("snr", snr, least=0.0))
            case {"token": text, **rest} if not rest:
                return Known(token(text))
            case {"allowed": texts, **rest} if not rest:
                listed = sequence("allowed", texts, "tokens")
                return Allowed(tuple(map(token, listed)))
            case {"n_best": Mapping() as shares, **rest} if not rest:
                return NBest(
                    {token(t): probability(f"n_best of {t!r}", p) for t, p in shares.items()}
                )
        raise ValueError(f"expected {FORMS}; got {cut(repr(entry))}")

    rows: list[Hints] = []
    for number, row in enumerate(hint_rows(data)):
        found = []
        for position, entry in enumerate(row):
            try:
                found.append(several(entry))
            except ValueError as error:
                raise ValueError(f"hints, row {number}, position {position}: {error}") from None
        rows.append(found)
    return rows


FORMS = (
    'null, a token such as "a", {"token": "a", "confidence": 0.8}, {"token": "a", "snr": 2.0}, '
    '{"allowed": ["a", "b"]} or {"n_best": {"a": 0.6}}'
)


def require_gap(text: str) -> None:
    """Raise an error for a text without brackets; `parse_gaps` checks the gaps themselves."""
    if not GAP.search(text) and not BRACKETED.search(text):
        raise ValueError(f"the text has no gap: write one as [12], got {shown(text)}")


def require_room(model: Model, text: str, length: int) -> None:
    """Raise an error for a text that is too long under any tokenization, without encoding it."""
    if model.tokenizer is None or len(text) <= length:
        return
    longest = max(map(len, model.tokenizer.get_vocab()))
    if len(text) > length * (longest + 1):  # a decoder may put a space between two
        room = model.name if length <= model.length else "the sequence"
        raise ValueError(f"{room} has at most {length} tokens, got {len(text):,} characters")


def count_characters(text: str) -> int:
    """Return the length of a text in characters and gaps, which is its length for an oracle."""
    return len(GAP.sub("", text)) + sum(gap_size(size) for size in GAP.findall(text))


def gap_size(digits: str, longest: int = LONGEST_GAP) -> int:
    """Return the length of a gap, between 1 and the longest sequence."""
    size = int(digits) if len(digits) <= 9 else None
    if size is None or not 1 <= size <= longest:
        shown = digits if len(digits) <= 12 else f"{digits[:12]}…"
        raise ValueError(f"a gap has 1 to {longest:,} tokens, got [{shown}]")
    return size
