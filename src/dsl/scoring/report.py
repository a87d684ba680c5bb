"""What the estimators say about texts, with errors, as numbers and as a table's rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dsl.data.documents import padding
from dsl.likelihoods.audit import Audit, audit
from dsl.likelihoods.estimate import Estimate, Kind, Mean, Reading
from dsl.loading import Model


@dataclass(frozen=True, eq=False)
class Block:
    """A sequence that was scored."""

    tokens: Int[Tensor, "l"]
    values: Mapping[str, Float[Tensor, "r l"]]
    """-log P in nats by estimator, in independent replicates, split among the tokens."""
    text: int = 0
    """The text it was cut from."""


@dataclass(frozen=True, eq=False)
class Report:
    """What the estimators say about some blocks of text."""

    model: Model
    blocks: Sequence[Block]
    kinds: Mapping[str, Kind]
    """The estimators, and what sort of number each gives."""
    cutoff: float
    span: tuple[int, int] | None = None
    """The token positions that were scored in each block, given the others; None is all."""

    def __repr__(self) -> str:
        """Show the numbers."""
        lines = [f"{len(self.blocks)} blocks, {self.scored} tokens scored by {self.model.name}"]
        for name, kind in self.kinds.items():
            bits = self.bits_per_token(name)
            lines.append(
                f"  {name:<12} {bits.mean:.4f} ± {bits.stderr:.4f} bits per token ({kind})"
            )
        return "\n".join(lines)

    @property
    def sizes(self) -> Float[Tensor, "b"]:
        """The number of tokens that were scored in each block, padding left out."""
        if self.span is not None:
            sizes = [self.span[1] - self.span[0]] * len(self.blocks)
        elif self.model.documents:
            sizes = [int((~self._padding(block)).sum()) for block in self.blocks]
        else:
            sizes = [len(block.tokens) for block in self.blocks]
        return torch.tensor(sizes, dtype=torch.float64)

    @property
    def scored(self) -> int:
        """The number of tokens that were scored in all blocks."""
        return int(self.sizes.sum())

    @property
    def audit(self) -> Audit:
        """The spread between the estimators, in nats for each token."""
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
        """Return what each token of each block contributes to -log P, in nats."""
        return [block.values[name].mean(dim=0) for block in self.blocks]

    def bits_per_token(self, name: str) -> Mean:
        """Average over all tokens that were scored."""
        found = self.reading(name)
        bits = math.log(2)
        return Mean.ratio(found.nats / bits, self.sizes, found.stderr / bits)

    def bits_per_character(self, name: str, *, specials: bool = True) -> Mean:
        """Charge the text's characters with all bits, or with those of ordinary tokens only."""
        error = self.reading(name).stderr / math.log(2)
        nats = torch.stack(
            [
                (nats * (torch.ones_like(nats) if specials else self._ordinary[block.tokens])).sum()
                for block, nats in zip(self.blocks, self.attributions(name), strict=True)
            ]
        )
        return Mean.ratio(nats / math.log(2), self._characters, error)

    def bits_per_document(self, name: str) -> Mean:
        """Average over documents: what the whole text costs, its end included."""
        if not self.model.documents or self.span is not None:
            raise ValueError(f"no whole documents were scored by {self.model.name}")
        owner = torch.tensor([block.text for block in self.blocks])
        texts = owner.unique()
        found, bits = self.reading(name), math.log(2)
        nats = torch.stack([found.nats[owner == text].sum() for text in texts])
        squares = torch.stack([found.stderr[owner == text].square().sum() for text in texts])
        ends = torch.tensor([self._ends(block) for block in self.blocks], dtype=torch.float64)
        # one without an end was cut, and is one all the same
        counts = torch.stack([ends[owner == text].sum().clamp(min=1) for text in texts])
        return Mean.ratio(nats / bits, counts, squares.sqrt() / bits)

    @property
    def characters(self) -> int:
        """The characters that were scored, special tokens left out."""
        return int(self._characters.sum())

    def by_text(self) -> list[Report]:
        """Return a report on each of the texts, in their order."""
        texts = dict.fromkeys(block.text for block in self.blocks)
        return [
            replace(self, blocks=[block for block in self.blocks if block.text == text])
            for text in texts
        ]

    def joined(self, shares: Sequence[tuple[int, Block]]) -> Report:
        """Return the report on blocks that several processes scored, in the order of the corpus."""
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
        """Return every number with its standard error, ready for JSON."""
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
