"""Sentence pieces: the tokenizer of a llama2.c file, whole or restricted to some pieces."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

SPACE = "▁"
"""How sentence pieces write a space."""
BEGIN = 1
"""The piece that begins every text of a llama2.c model, and so ends the one before."""
END = "<s>"
BYTES = range(3, 259)
"""Pieces that stand for one byte each, for characters that have no piece."""


@dataclass(frozen=True)
class Pieces:
    """The table of a llama2.c tokenizer.bin."""

    texts: Sequence[bytes]
    scores: Sequence[float]
    """Of two pieces that can be merged, that with the higher score is."""

    @classmethod
    def read(cls, data: bytes, count: int, name: str) -> Pieces:
        """Read a table of so many pieces, to the last byte."""
        texts, scores, at = [], [], 4
        for number in range(count):
            if at + 8 > len(data):
                raise ValueError(f"{name} ends after {number} of {count} pieces")
            score, size = struct.unpack_from("<fi", data, at)
            at += 8 + size
            if size < 0 or at > len(data):
                raise ValueError(f"{name} is damaged at piece {number}")
            texts.append(data[at - size : at])
            scores.append(score)
        if at != len(data):
            raise ValueError(f"{name} has {len(data) - at} bytes after its {count} pieces")
        return cls(texts, scores)

    def written(self, piece: int) -> str | None:
        """Return a piece as a tokenizer's file has it, or None for a byte that is no character."""
        if piece in BYTES:
            byte = piece - BYTES.start
            return chr(byte) if byte == 10 else None  # stories have lines
        return self.texts[piece].decode("utf-8").replace(" ", SPACE)

    def closed(self, wanted: Iterable[int], most: int) -> list[int]:
        """Take pieces in the order given, each with all it is merged from, while there is room.

        Then merging within them finds the same pieces as merging within all, wherever those lie in
        what was taken.
        """
        known = {self.written(p): p for p in range(BYTES.stop, len(self.texts))}
        taken: set[int] = set()
        for piece in wanted:
            text = self.written(piece)
            if text is None or text.count(SPACE) > 1 or SPACE in text[1:]:
                continue  # runs of spaces
            parts = {known[part] for part in self._derivation(text, known)} if text != "\n" else ()
            if len(taken | {piece, *parts}) <= most:
                taken |= {piece, *parts}
        return sorted(taken)

    def _derivation(self, text: str, known: Mapping[str | None, int]) -> set[str]:
        """Return every piece that merging makes on its way to a piece."""
        parts, met = list(text), set(text)
        while len(parts) > 1:
            scores = [self.scores[known[a + b]] if a + b in known else -1e30
                      for a, b in pairwise(parts)]  # fmt: skip
            best = max(range(len(scores)), key=scores.__getitem__)
            if scores[best] == -1e30:
                return met & known.keys()
            parts[best : best + 2] = [parts[best] + parts[best + 1]]
            met.add(parts[best])
        return met & known.keys()

    def whole(self) -> Tokenizer:
        """Make the tokenizer of all pieces; what has none is spelt by its bytes."""
        special = {0: "<unk>", BEGIN: END, 2: "</s>"}
        written = {p: f"<0x{p - BYTES.start:02X}>" for p in BYTES} | special
        texts = [written.get(p) or str(self.written(p)) for p in range(len(self.texts))]
        vocabulary: dict[str, int] = {}
        for piece, text in enumerate(texts):  # a text that two pieces have is the first one's
            vocabulary.setdefault(text if text not in vocabulary else f"<{piece}>", piece)
        plain = {t: p for t, p in vocabulary.items() if p >= BYTES.stop}
        model = models.BPE(vocabulary, self._merges(plain), unk_token="<unk>", byte_fallback=True)
        tokenizer = _spaced(Tokenizer(model), [decoders.ByteFallback()])
        tokenizer.add_special_tokens([AddedToken(text) for text in special.values()])
        return _ended(tokenizer)

    def _merges(self, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
        """List the pairs that can be merged, those of the highest score first."""
        merges = [
            (-self.scores[piece], text[:i], text[i:])
            for text, piece in vocabulary.items()
            for i in range(1, len(text))
            if text[:i] in vocabulary and text[i:] in vocabulary
        ]
        return [(a, b) for _, a, b in sorted(merges)]

    def tokenizer(self, kept: Sequence[int]) -> Tokenizer:
        """Make the tokenizer of some pieces, in this order, and of the end of a text after them."""
        written = [self.written(piece) for piece in kept]
        if None in written or len(set(written)) < len(written):
            raise ValueError("single bytes and pieces that occur twice cannot be kept")
        vocabulary = {str(text): index for index, text in enumerate(written)}
        merges = self._merges({str(text): p for text, p in zip(written, kept, strict=True)})
        tokenizer = _spaced(Tokenizer(models.BPE(vocabulary, merges)), [])
        tokenizer.pre_tokenizer = pre_tokenizers.Split(SPACE, "merged_with_next")
        tokenizer.add_special_tokens([AddedToken(END)])
        return _ended(tokenizer)


def _spaced(tokenizer: Tokenizer, inner: list[Any]) -> Tokenizer:
    """Let a text begin with a word, and a word with a space."""
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), *inner, decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def _ended(tokenizer: Tokenizer) -> Tokenizer:
    """Let the end of a text stand after it."""
    end = (END, tokenizer.token_to_id(END))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", special_tokens=[end]
    )
    return tokenizer


def within(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer for what stands inside a text: no space is put before its first word.

    It is the tokenizer itself if that puts none.
    """
    state: dict[str, Any] = json.loads(tokenizer.to_str())
    prepended, stripped = _without(state["normalizer"]), _without(state["decoder"])
    if prepended == state["normalizer"]:
        return tokenizer
    return Tokenizer.from_str(json.dumps({**state, "normalizer": prepended, "decoder": stripped}))


def _without(part: Any) -> Any:
    """Take out what a normalizer puts before a text, and a decoder takes from it."""
    if not isinstance(part, dict):
        return part
    for name in ("normalizers", "decoders"):
        if name in part:
            return {**part, name: [_without(p) for p in part[name] if _without(p) is not None]}
    return None if part["type"] in ("Prepend", "Strip") else part


def spaced(tokenizer: Tokenizer) -> bool:
    """Whether the pieces of words bring the space before them along, as '▁cat' and 'Ġcat' do."""
    return any(len(text) > 1 and text[0] in (SPACE, "Ġ", " ") for text in tokenizer.get_vocab())
