"""Sentence pieces: the tokenizer of a llama2.c file, whole or restricted to some pieces."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from dsl._util.config import cut, one_line, shown
from dsl._util.files import write_text
from dsl.data import sources
from dsl.data.sources import Progress

TOKENIZER = "tokenizer.json"
END_OF_TEXT = "<|endoftext|>"
MDLM_SPECIALS = ("[CLS]", "[SEP]", "[BOS]", "[EOS]", "[PAD]", "[RESERVED]", "[UNK]")


def characters(alphabet: str) -> Tokenizer:
    """Make a tokenizer with one token for each character of an alphabet, in its order."""
    if len(set(alphabet)) != len(alphabet) or not alphabet:
        raise ValueError(f"an alphabet needs characters that all differ, got {alphabet!r}")
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=alphabet[0]))
    tokenizer.pre_tokenizer = _each_character()
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def byte_level() -> Tokenizer:
    """Make a tokenizer with one token for each byte of UTF-8, its id the byte: any text fits."""
    vocabulary = {character: byte for byte, character in enumerate(_byte_characters())}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=_byte_characters()[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            _each_character(),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _byte_characters() -> list[str]:
    """Return the printable character by which the library writes each byte.

    Printable bytes of Latin-1 stand for themselves, the others for what follows byte 255.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (chr(code) for code in range(256, 512))
    return [chr(byte) if byte in printable else next(others) for byte in range(256)]


def mdlm_text8() -> Tokenizer:
    """Make MDLM's 35 symbols of text8, in its order: specials, a to z, space.

    [MASK], its fifth, is the zero state and has no id, which leaves 34 tokens: those, in the same
    order, that `dsl convert mdlm --mask-index 4` keeps. Blocks begin and end with [BOS] and [EOS].
    """
    symbols = [*MDLM_SPECIALS, *"abcdefghijklmnopqrstuvwxyz "]
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = _each_character()
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(symbol) for symbol in MDLM_SPECIALS])
    return bracketed(tokenizer, "[BOS]", "[EOS]")


def gpt2(pieces: Sequence[bytes]) -> Tokenizer:
    """Make GPT-2's tokenizer from its byte pieces in the order of their ids.

    The list holds no merges, but they follow from it: a piece was made of the two that merging by
    rank alone leaves of it. Blocks begin and end with <|endoftext|>, as MDLM's do.
    """
    letters = _byte_characters()
    rank = {piece: index for index, piece in enumerate(pieces)}
    written = {piece: "".join(letters[byte] for byte in piece) for piece in pieces}
    vocabulary = {written[piece]: index for piece, index in rank.items()}
    vocabulary[END_OF_TEXT] = len(pieces)
    merges = []
    for piece in pieces:
        if len(piece) > 1:
            left, right = _last_merge(piece, rank)
            merges.append((written[left], written[right]))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT)])
    return bracketed(tokenizer, END_OF_TEXT, END_OF_TEXT)


def _last_merge(piece: bytes, rank: dict[bytes, int]) -> tuple[bytes, bytes]:
    parts = [piece[i : i + 1] for i in range(len(piece))]
    while len(parts) > 2:
        pairs = [rank.get(a + b, len(rank)) for a, b in pairwise(parts)]
        lowest = min(range(len(pairs)), key=pairs.__getitem__)
        parts[lowest : lowest + 2] = [parts[lowest] + parts[lowest + 1]]
    return parts[0], parts[1]


def bracketed(tokenizer: Tokenizer, begin: str, end: str) -> Tokenizer:
    """Let blocks begin and end with these specials, "" for none; the tokenizer's file says so."""
    symbols = [symbol for symbol in dict.fromkeys((begin, end)) if symbol]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}".strip(),
        special_tokens=[(symbol, tokenizer.token_to_id(symbol)) for symbol in symbols],
    )
    return tokenizer


def ends(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the specials that a block begins and ends with, one at each end at most."""
    specials = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    ordinary = min((t, index) for t, index in tokenizer.get_vocab().items() if t not in specials)
    token = tokenizer.decode([ordinary[1]], skip_special_tokens=False)
    alone = tokenizer.encode(token, add_special_tokens=False).ids
    whole = tokenizer.encode(token, add_special_tokens=True).ids
    added = len(whole) - len(alone)
    before = next((i for i in range(added + 1) if whole[i : i + len(alone)] == alone), 0)
    if before > 1 or added - before > 1:
        raise ValueError(f"a block can have one special at each end, the tokenizer adds {added}")
    return whole[:before], whole[len(whole) - (added - before) :]


def by_name(name: str, cache: Path, *, on_progress: Progress | None = None) -> Tokenizer:
    """Return `bytes`, `gpt2`, `mdlm-text8`, or the tokenizer of a file; GPT-2's is fetched once."""
    if name == "bytes":
        return byte_level()
    if name == "mdlm-text8":
        return mdlm_text8()
    if name != "gpt2":
        if not Path(name).is_file():
            raise ValueError(
                f"unknown tokenizer {name!r}; expected characters, bytes, gpt2, mdlm-text8, "
                f"smiles, bpe-N such as bpe-2048, or the path of a {TOKENIZER}"
            )
        return read(Path(name))
    path = cache / "tokenizers" / "gpt2.json"
    if not path.is_file():
        tokenizer = gpt2(sources.gpt2_ranks(on_progress or (lambda *_: None)))
        write_text(path, tokenizer.to_str(pretty=True))
    return read(path)


def read(path: Path) -> Tokenizer:
    """Read a tokenizer.json, refusing ids that leave holes: no text would come of those."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"{path} is not a tokenizer: {one_line(error)}") from error
    vocabulary = tokenizer.get_vocab()
    if not vocabulary:
        raise ValueError(f"{path} has no tokens")
    last = len(vocabulary) - 1
    if strange := set(vocabulary.values()) ^ set(range(last + 1)):
        raise ValueError(
            f"{path} has {last + 1} tokens, whose ids must be 0 … {last}, each once; "
            f"that is not so of {min(strange)}"
        )
    if strange_names := _undefined(tokenizer):
        raise ValueError(
            f"{path} puts {shown(min(strange_names))} around texts, a special that it does not "
            "define"
        )
    return tokenizer


def _undefined(tokenizer: Tokenizer) -> set[str]:
    """Find specials of a template that it does not define: the library panics where it meets one.

    A panic is no exception that could be caught, and prints what no user should see.
    """
    processor = tokenizer.post_processor
    pending = [] if processor is None else [json.loads(processor.__getstate__())]
    undefined: set[str] = set()
    while pending:
        part = pending.pop()
        pending += part.get("processors", [])
        if part.get("type") == "TemplateProcessing":
            pieces = [*part["single"], *part["pair"]]
            used = {piece["SpecialToken"]["id"] for piece in pieces if "SpecialToken" in piece}
            undefined |= used - set(part["special_tokens"])
    return undefined


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Turn text into token ids, refusing what the tokenizer cannot say."""
    ids: list[int] = []
    for piece in _pieces(tokenizer, text):
        try:
            encoded = tokenizer.encode(piece, add_special_tokens=False).ids
        except Exception as error:  # bare, of a vocabulary without the token for the unknown
            raise ValueError(_why_not(tokenizer, text)) from error
        if decode(tokenizer, encoded) != piece:
            raise ValueError(_why_not(tokenizer, text))
        ids += encoded
    return ids


def _why_not(tokenizer: Tokenizer, text: str) -> str:
    specials = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    known = set("".join(token for token in tokenizer.get_vocab() if token not in specials))
    strange = sorted(set(text) - known)
    if not strange:
        return (
            "the tokenizer does not give back the text it was given (does it change case or "
            "spaces?); use one that does"
        )
    inside = f"; it knows {''.join(sorted(known))!r}" if len(known) <= 40 else ""
    return (
        f"the text has characters outside the model's vocabulary: {cut(''.join(strange))!r}{inside}"
    )


PIECE = 1 << 15
"""Characters of a long text that are encoded at a time: the library needs 400 bytes for each."""

GPT2_CUT = re.compile(r"""(?<=[\w.,;:!?)'"])[ \n]""")
"""No match of GPT-2's pattern goes on from a letter, digit or sign to a space."""


def _pieces(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    """Cut a long text where the tokens on both sides do not depend on each other, if anywhere."""
    begin = 0
    if len(text) > PIECE and (cut := _cut(tokenizer)) is not None:
        added = tokenizer.get_added_tokens_decoder().values()
        apart = not any(token.content in text for token in added)  # none can be cut in two
        while apart and (found := cut.search(text, begin + PIECE)):
            yield text[begin : found.start()]
            begin = found.start()
    yield text[begin:]


def _cut(tokenizer: Tokenizer) -> re.Pattern[str] | None:
    """Say where this tokenizer's texts may be cut: between any two characters, or GPT-2's way.

    None if its tables do not show that cutting changes nothing.
    """
    plain = all(
        part is None for part in (tokenizer.normalizer, tokenizer.truncation, tokenizer.padding)
    )
    if not plain or not isinstance(tokenizer.decoder, decoders.Fuse | decoders.ByteLevel):
        return None
    model, splits = tokenizer.model, _splits(tokenizer.pre_tokenizer)
    if splits in ([EACH], [(False, False), EACH]) and isinstance(model, models.WordLevel):
        return ANYWHERE
    if splits == [(False, True)] and isinstance(model, models.BPE) and not model.dropout:
        return GPT2_CUT
    return None


ANYWHERE = re.compile(r"(?=[\s\S])")
EACH = "each character"


def _splits(pre_tokenizer: Any) -> list[Any]:
    """Describe how text is split: by character, or by bytes with (prefix space, pattern)."""
    if pre_tokenizer is None:
        return []
    state = json.loads(pre_tokenizer.__getstate__())
    found: list[Any] = []
    for part in state.get("pretokenizers", [state]):
        if part["type"] == "ByteLevel":
            found.append((part["add_prefix_space"], part["use_regex"]))
        elif part == json.loads(_each_character().__getstate__()):
            found.append(EACH)
        else:
            found.append(part["type"])
    return found


def _each_character() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")


def decode(tokenizer: Tokenizer, ids: list[int]) -> str:
    """Turn token ids into text, special tokens included."""
    text: str = tokenizer.decode(ids, skip_special_tokens=False)
    return text


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
