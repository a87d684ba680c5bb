"""Score texts: each of them whole, or a span of each given the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from dsl._util.validate import finite_number, sequence, whole_number
from dsl._util.validate import text as require_text
from dsl.checkpoints.loading import Model, is_name, loaded
from dsl.conditioning.evidence import Evidence, Hint, Known, Unknown, given
from dsl.core.denoiser import Denoiser
from dsl.core.types import Row
from dsl.evaluation.scoring import Block, Report, score


def likelihood(
    model: str | Path | Model,
    texts: str | Sequence[str],
    *,
    length: int | None = None,
    span: tuple[int, int] | None = None,
    budget: int = 64,
    cutoff: float | None = None,
    seed: int = 0,
    only: Sequence[str] | None = None,
) -> Report:
    """Score texts with every estimator, or only some.

    Every text is scored to its end: one that is longer than a block is cut into blocks, the last
    of which may be shorter. `by_text()` of the report has the numbers of each. To a model of
    documents a text is a whole one, and its end is scored too.

    >>> dsl.likelihood("oracle:cyclic-7", ["ABCDEFG"]).bits_per_token("roar")

    Args:
        model: A model, or its name.
        texts: One text or several.
        length: Tokens in a block; the model's own length if not given.
        span: Score only the token positions from begin to end, given the rest of each text.
        budget: Denoiser calls for each block and estimator.
        cutoff: Γ, where contours end; chosen if not given.
        seed: Where the random numbers start.
        only: The estimators to use; all of the model's family if not given.
    """
    listed = [texts] if isinstance(texts, str) else list(sequence("texts", texts, "texts"))
    if not listed:
        raise ValueError("texts must hold at least one text, got none")
    for entry in listed:
        require_text("texts", entry)
    whole_number("seed", seed, least=0)
    whole_number("budget", budget)
    if cutoff is not None:
        finite_number("cutoff", cutoff)
    if only is not None and not sequence("only", only, "estimators"):
        raise ValueError("only must name at least one estimator, got none")
    if span is not None:
        span = _two_places(span)
    model = _loaded(model, listed[0], length)
    rows, owners = blocks_of(model, listed, length)
    if span is None:
        return score(model, rows, texts=owners, budget=budget, cutoff=cutoff, seed=seed, only=only)
    return _spans(model, rows, owners, span, budget=budget, cutoff=cutoff, seed=seed, only=only)


def blocks_of(
    model: Model, texts: Sequence[str], length: int | None = None
) -> tuple[list[Row], list[int]]:
    """Cut texts into blocks that begin and end as the model's do, and say whose each is.

    To a model of documents every text is one: after its last token comes the end, and padding.
    """
    longest = model.length if length is None else whole_number("length", length, least=1)
    before, after = model.ends
    room = longest - len(before) - (0 if model.documents else len(after))
    if room < 1:
        raise ValueError(f"a block of {longest} tokens has no room for text")
    rows, owners = [], []
    for number, text in enumerate(texts):
        ids = model.encode(text)
        if not ids:
            raise ValueError("a text is empty; nothing can be said about it")
        for begin in range(0, len(ids), room):
            piece = [*before, *ids[begin : begin + room]]
            ending = _padding(model, longest - len(piece)) if model.documents else after
            rows.append(torch.tensor([*piece, *ending]))
            owners.append(number)
    return rows, owners


def _padding(model: Model, left: int) -> list[int]:
    """Return what follows a document: its end, and padding unless others may follow too."""
    return model.ends[1] * (min(1, left) if model.share else left)


def _loaded(model: str | Path | Model, text: str, length: int | None) -> Model:
    try:
        return loaded(model, length=length)
    except FileNotFoundError as error:
        if not is_name(text):
            raise
        raise ValueError(
            f"model and texts seem to be swapped: {text!r} is a model, {str(model)!r} is none"
        ) from error


def _two_places(span: Any) -> tuple[int, int]:
    if len(sequence("span", span, "two token positions")) != 2:
        raise ValueError(f"span must be a list of two token positions, got {span!r}")
    begin, end = (whole_number("span", place) for place in span)
    return begin, end


def _spans(
    model: Model,
    rows: Sequence[Row],
    owners: Sequence[int],
    span: tuple[int, int],
    *,
    budget: int,
    cutoff: float | None,
    seed: int,
    only: Sequence[str] | None,
) -> Report:
    begin, end = span
    shortest = min(len(row) for row in rows)
    if not 0 <= begin < end <= shortest:
        raise ValueError(f"a span must lie within 0 … {shortest}, got {begin} … {end}")
    if not model.can_answer(Denoiser):
        raise ValueError(
            "a span is scored given the text on both sides, which "
            f"{model.name} cannot be asked: it is a model of family {model.family.name}"
        )
    blocks: list[Block] = []
    report = None
    for index, row in enumerate(rows):
        report = score(
            _given_rest(model, row, begin, end),
            [row],
            indices=[index],
            texts=[owners[index]],
            budget=budget,
            cutoff=cutoff,
            validation=None,
            seed=seed,
            only=only,
        )
        cutoff = report.cutoff  # chosen once
        blocks += report.blocks
    assert report is not None
    return replace(report, model=model, blocks=blocks, span=(begin, end))


def _given_rest(model: Model, row: Row, begin: int, end: int) -> Model:
    """Condition a model on all tokens outside a span."""
    hints: list[Hint] = [
        Unknown() if begin <= position < end else Known(token)
        for position, token in enumerate(row.tolist())
    ]
    return replace(model, denoiser=given(model.denoiser, Evidence.of([hints], model.denoiser)))
