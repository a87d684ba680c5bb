"""Score blocks of tokens, or texts, with the estimators of the model's family."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dsl._util.validate import finite_number, sequence, whole_number
from dsl._util.validate import text as require_text
from dsl._util.words import counted
from dsl.checkpoints.loading import Model, is_name, loaded
from dsl.conditioning.evidence import Evidence, given
from dsl.conditioning.hints import Hint, Known, Unknown
from dsl.core.denoiser import Denoiser, at_once
from dsl.core.path import Tabulated
from dsl.core.streams import Streams, stream
from dsl.core.types import Row, Tokens
from dsl.data.document_ends import padding
from dsl.evaluation.blocks import blocks_of
from dsl.likelihoods.estimate import Effort, Estimate, Estimator, Kind, Mean, Reading
from dsl.likelihoods.path_audit import Audit, audit
from dsl.likelihoods.path_integral import PathIntegral, choose_cutoff


@dataclass(frozen=True, eq=False)
class Block:
    """A sequence that was scored."""

    tokens: Int[Tensor, "l"]
    values: Mapping[str, Float[Tensor, "r l"]]
    """-log P in nats by estimator, in independent replicates, split among the tokens."""
    text: int = 0
    """Index of the text that it is part of."""


@dataclass(frozen=True, eq=False)
class Report:
    """The likelihoods of blocks of text by several estimators."""

    model: Model
    blocks: Sequence[Block]
    kinds: Mapping[str, Kind]
    """The estimators: exact, bound or estimate."""
    cutoff: float
    span: tuple[int, int] | None = None
    """The positions that were scored in each block, given the others; None means all."""

    def __repr__(self) -> str:
        """Show the numbers."""
        blocks, tokens = counted(len(self.blocks), "block"), counted(self.scored, "token")
        lines = [f"{blocks}, {tokens} scored by {self.model.name}"]
        for name, kind in self.kinds.items():
            bits = self.bits_per_token(name)
            lines.append(
                f"  {name:<12} {bits.mean:.4f} ± {bits.stderr:.4f} bits per token ({kind})"
            )
        return "\n".join(lines)

    @property
    def sizes(self) -> Float[Tensor, "b"]:
        """The number of scored tokens in each block, without padding."""
        if self.span is not None:
            sizes = [self.span[1] - self.span[0]] * len(self.blocks)
        elif self.model.documents:
            sizes = [int((~self._padding(block)).sum()) for block in self.blocks]
        else:
            sizes = [len(block.tokens) for block in self.blocks]
        return torch.tensor(sizes, dtype=torch.float64)

    @property
    def scored(self) -> int:
        """The number of scored tokens in all blocks."""
        return int(self.sizes.sum())

    @property
    def audit(self) -> Audit:
        """The spread between the estimators, in nats per token."""
        return audit({name: self.reading(name) for name in self.kinds}, self.scored)

    def reading(self, name: str) -> Reading:
        """Return -log P of every block by one estimator, with its Monte-Carlo error."""
        if name not in self.kinds:
            raise ValueError(f"no estimator {name!r} was used; expected one of {list(self.kinds)}")
        found = [Estimate(block.values[name].unsqueeze(0)).reading for block in self.blocks]
        return Reading(
            torch.cat([reading.nats for reading in found]),
            torch.cat([reading.stderr for reading in found]),
        )

    def attributions(self, name: str) -> list[Float[Tensor, "_"]]:
        """Return the contribution of every token to -log P, in nats."""
        return [block.values[name].mean(dim=0) for block in self.blocks]

    def bits_per_token(self, name: str) -> Mean:
        """Return the mean over all scored tokens."""
        found = self.reading(name)
        bits = math.log(2)
        return Mean.ratio(found.nats / bits, self.sizes, found.stderr / bits)

    def bits_per_character(self, name: str, *, specials: bool = True) -> Mean:
        """Return bits per character, with or without the bits of special tokens."""
        error = self.reading(name).stderr / math.log(2)
        nats = torch.stack(
            [
                (nats * (torch.ones_like(nats) if specials else self._ordinary[block.tokens])).sum()
                for block, nats in zip(self.blocks, self.attributions(name), strict=True)
            ]
        )
        return Mean.ratio(nats / math.log(2), self._characters, error)

    def bits_per_document(self, name: str) -> Mean:
        """Return the mean over documents, including their end tokens."""
        if not self.model.documents or self.span is not None:
            raise ValueError(f"{self.model.name} has scored no whole documents")
        owner = torch.tensor([block.text for block in self.blocks])
        texts = owner.unique()
        found, bits = self.reading(name), math.log(2)
        nats = torch.stack([found.nats[owner == text].sum() for text in texts])
        squares = torch.stack([found.stderr[owner == text].square().sum() for text in texts])
        ends = torch.tensor([self._ends(block) for block in self.blocks], dtype=torch.float64)
        # a document without an end was cut off, and still counts as one
        counts = torch.stack([ends[owner == text].sum().clamp(min=1) for text in texts])
        return Mean.ratio(nats / bits, counts, squares.sqrt() / bits)

    @property
    def characters(self) -> int:
        """The number of scored characters, without special tokens."""
        return int(self._characters.sum())

    def by_text(self) -> list[Report]:
        """Return a report for each text."""
        texts = dict.fromkeys(block.text for block in self.blocks)
        return [
            replace(self, blocks=[block for block in self.blocks if block.text == text])
            for text in texts
        ]

    def joined(self, shares: Sequence[tuple[int, Block]]) -> Report:
        """Return the report of blocks from several processes, in the order of the corpus."""
        ordered = [block for _, block in sorted(shares, key=lambda share: share[0])]
        return replace(self, blocks=ordered)

    def _padding(self, block: Block) -> Bool[Tensor, "l"]:
        return padding(block.tokens.unsqueeze(0), self.model.ends).squeeze(0)

    def _ends(self, block: Block) -> int:
        """Count the documents that end in a block."""
        begin = len(self.model.ends[0])
        is_end = (block.tokens == self.model.end) & ~self._padding(block)
        return int(is_end[begin:].sum())

    @property
    def _characters(self) -> Float[Tensor, "b"]:
        counts = []
        for block in self.blocks:
            begin, end = self.span or (0, len(block.tokens))
            row = [t for t in block.tokens[begin:end].tolist() if t not in self.model.specials]
            counts.append(len(self.model.decode(row)))
        return torch.tensor(counts, dtype=torch.float64)

    @property
    def _ordinary(self) -> Float[Tensor, "v"]:
        ordinary = [token not in self.model.specials for token in range(self.model.vocab_size)]
        return torch.tensor(ordinary, dtype=torch.float64)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers with their standard errors, for JSON."""
        sections = {name: self._section(name) for name in self.kinds}
        lengths = {len(block.tokens) for block in self.blocks}
        result: dict[str, Any] = {
            "model": self.model.name,
            "sequences": len(self.blocks),
            "length": lengths.pop() if len(lengths) == 1 else None,
            "tokens": self.scored,
        }
        contours = {n: s for n, s in sections.items() if self.kinds[n] == "estimate"}
        for name, section in sections.items():
            if name not in contours:
                result[name.replace("-", "_")] = section
        if contours:
            result |= {"cutoff": self.cutoff, "path_integral": contours}
        if contours and len(sections) > 1:
            found = self.audit
            result["audit"] = {
                "spread": found.spread / math.log(2),
                "stderr": found.stderr / math.log(2),
                "z": found.z,
                "between": list(found.between),
            }
        return result

    def _section(self, name: str) -> dict[str, Any]:
        bits = self.bits_per_token(name)
        section: dict[str, Any] = {
            "kind": self.kinds[name],
            "bits_per_token": bits.mean,
            "stderr": bits.stderr,
            "nats_per_token": bits.mean * math.log(2),
            "nats_per_sequence": bits.mean * math.log(2) * self.scored / len(self.blocks),
        }
        if self.model.tokenizer is not None:
            characters = self.bits_per_character(name)
            section |= {
                "bits_per_character": characters.mean,
                "bits_per_character_stderr": characters.stderr,
                "bits_per_character_without_specials": self.bits_per_character(
                    name, specials=False
                ).mean,
            }
        if self.model.documents and self.span is None:
            whole = self.bits_per_document(name)
            section |= {"bits_per_document": whole.mean, "bits_per_document_stderr": whole.stderr}
        return section


STATES_AT_ONCE = 2**24
"""Largest number of elements in the states of one group of sequences."""


def score(
    model: Model,
    rows: Sequence[Row] | Tokens,
    *,
    indices: Sequence[int] | None = None,
    texts: Sequence[int] | None = None,
    budget: int = 64,
    cutoff: float | None = None,
    validation: Sequence[Row] | None = None,
    table: Tabulated | None = None,
    seed: int = 0,
    only: Sequence[str] | None = None,
    on_progress: Callable[[float, int], None] | None = None,
) -> Report:
    """Estimate the likelihood of blocks, which may differ in length.

    Args:
        model: The model.
        rows: The blocks.
        indices: Their places in the corpus, which determine their random numbers.
        texts: The index of the text of each block.
        budget: Denoiser calls per block and estimator.
        cutoff: Γ, the end of the contours. Default: chosen once, with the same budget, on the
            validation blocks, or on the scored blocks if there are no others.
        validation: Blocks that are not scored.
        table: An additional contour.
        seed: Random seed.
        only: The estimators to use. Default: all of the family.
        on_progress: Called after each estimator with the blocks it has done, divided by the number
            of estimators, and their tokens.
    """
    whole = list(rows)
    for length in {len(row) for row in whole}:
        model.require_length(length)
    effort = Effort(budget, 1.0 if cutoff is None else cutoff, table).on(model.device)
    known = _estimators(model, effort)
    if unknown := [name for name in only or () if name not in known]:
        raise ValueError(f"{model.name} has no estimator {unknown}; expected some of {list(known)}")
    names = list(known if only is None else dict.fromkeys(only))
    if cutoff is None:
        held_out = whole if validation is None or not len(validation) else list(validation)
        effort = replace(effort, cutoff=_cutoff(model, known, held_out, seed, effort.cutoff))
    places = range(len(whole)) if indices is None else indices
    found: dict[int, dict[str, Tensor]] = {number: {} for number in range(len(whole))}
    for group in _groups(model, whole, effort.budget):
        tokens = torch.stack([whole[i] for i in group]).to(model.device)
        size = at_once(model.denoiser, tokens.shape[1])
        sized = _estimators(model, replace(effort, batch_size=size))
        for name in (label for label in sized if label in names):
            streams = streams_of(sized[name], seed, [places[i] for i in group], model.device)
            values = sized[name](model.denoiser, tokens, generator=streams).values.cpu()
            for number, own in zip(group, values, strict=True):
                found[number][name] = own
            if on_progress:
                on_progress(len(group) / len(names), tokens.numel())
    blocks = [
        Block(row.cpu(), found[i], i if texts is None else texts[i]) for i, row in enumerate(whole)
    ]
    return Report(model, blocks, {name: known[name].kind for name in names}, effort.cutoff)


def streams_of(
    estimator: Estimator, seed: int, places: Sequence[int], device: torch.device
) -> Streams:
    """Return random streams for an estimator; they depend on its name and on the places."""
    key = zlib.crc32(estimator.label.encode())
    return Streams(tuple(stream(seed, key, place, device=device) for place in places))


def _estimators(model: Model, effort: Effort) -> dict[str, Estimator]:
    return {e.label: e for e in model.family.estimators(model.denoiser, effort)}


def _cutoff(
    model: Model, known: Mapping[str, Estimator], held_out: Sequence[Row], seed: int, default: float
) -> float:
    """Choose Γ for the family's path integrals with the caller's budget, if it has any."""
    integrals = [estimator for estimator in known.values() if isinstance(estimator, PathIntegral)]
    if not integrals or not held_out:
        return default
    longest = max(len(row) for row in held_out)
    few = torch.stack([row for row in held_out if len(row) == longest][:16]).to(model.device)
    streams = Streams.derive(seed, range(len(few)), device=model.device)
    return choose_cutoff(model.denoiser, few, estimator=integrals[0], generator=streams)


def _groups(model: Model, rows: Sequence[Row], budget: int) -> Iterator[list[int]]:
    """Group blocks of one length, as many as fit into memory with all their states."""
    codebook = getattr(model.denoiser, "codebook", None)
    width = 1 if codebook is None else codebook.shape[1]
    for length in dict.fromkeys(len(row) for row in rows):
        same = [i for i, row in enumerate(rows) if len(row) == length]
        size = max(1, STATES_AT_ONCE // (budget * length * width))
        yield from (same[i : i + size] for i in range(0, len(same), size))


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
    """Score texts with every estimator, or with some of them.

    A text that is longer than a block is cut into blocks; the last one may be shorter. The report's
    `by_text()` has the numbers of each text. A model of documents also scores the end of each text.

    >>> dsl.likelihood("oracle:cyclic-7", ["ABCDEFG"]).bits_per_token("roar")

    Args:
        model: A model, or its name.
        texts: One text or several.
        length: Tokens per block. Default: the model's length.
        span: Score only the positions from begin to end (exclusive), given the rest of each text.
        budget: Denoiser calls per block and estimator.
        cutoff: Γ, the end of the contours. Default: chosen on the texts.
        seed: Random seed.
        only: The estimators to use. Default: all of the model's family.
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


def _loaded(model: str | Path | Model, text: str, length: int | None) -> Model:
    try:
        return loaded(model, length=length)
    except FileNotFoundError as error:
        if not is_name(text):
            raise
        raise ValueError(
            f"model and texts seem to be swapped: {text!r} is a model, {str(model)!r} is not"
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
        raise ValueError(f"span must lie within 0 … {shortest}, got {begin} … {end}")
    if not model.can_answer(Denoiser):
        raise ValueError(
            "span needs a model that uses the text on both sides, "
            f"got {model.name} of family {model.family.name}"
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
