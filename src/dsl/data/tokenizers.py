"""Tokenizers: characters, bytes, GPT-2, MDLM's text8, and llama2.c; encode, decode and check."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, AnyStr

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
from dsl._util.files import parse_json, require_regular, write_text
from dsl.data import sources
from dsl.data.sources import Progress

TOKENIZER = "tokenizer.json"
END_OF_TEXT = "<|endoftext|>"
MDLM_SPECIALS = ("[CLS]", "[SEP]", "[BOS]", "[EOS]", "[PAD]", "[RESERVED]", "[UNK]")


def characters(alphabet: str) -> Tokenizer:
    """Make a tokenizer with one token per character of an alphabet, in its order."""
    if len(set(alphabet)) != len(alphabet) or not alphabet:
        raise ValueError(f"an alphabet must have distinct characters, got {alphabet!r}")
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=alphabet[0]))
    tokenizer.pre_tokenizer = _each_character()
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def byte_level() -> Tokenizer:
    """Make a tokenizer with one token per byte of UTF-8; the id is the byte."""
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
    """Return the character that stands for each byte in byte-level tokenizers.

    Printable Latin-1 bytes stand for themselves; the others map to code points from 256.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (chr(code) for code in range(256, 512))
    return [chr(byte) if byte in printable else next(others) for byte in range(256)]


def mdlm_text8() -> Tokenizer:
    """Make MDLM's 35 symbols of text8, in its order: specials, a to z, space.

    [MASK], the fifth, is the zero state and has no id. The other 34 tokens are those that
    `dsl convert mdlm --mask-index 4` keeps. Blocks begin and end with [BOS] and [EOS].
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

    Ids are also merge ranks, so the last merge within a piece gives its pair. Blocks begin and end
    with <|endoftext|>, as MDLM's do.
    """
    letters = _byte_characters()
    rank = {piece: index for index, piece in enumerate(pieces)}
    written = {piece: "".join(letters[byte] for byte in piece) for piece in pieces}
    vocabulary = {written[piece]: index for piece, index in rank.items()}
    vocabulary[END_OF_TEXT] = len(pieces)
    pairs = []
    for piece in pieces:
        if len(piece) > 1:
            letters_of = [piece[i : i + 1] for i in range(len(piece))]
            *_, (left, right) = merges(letters_of, lambda a, b: rank.get(a + b))
            pairs.append((written[left], written[right]))
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT)])
    return bracketed(tokenizer, END_OF_TEXT, END_OF_TEXT)


def merges(
    parts: Sequence[AnyStr], rank: Callable[[AnyStr, AnyStr], int | None]
) -> Iterator[tuple[AnyStr, AnyStr]]:
    """Yield the pairs that byte-pair encoding merges in a word, in order.

    Args:
        parts: The characters of the word.
        rank: Returns the rank of a pair, lowest first; None if the pair is never merged.
    """
    left = list(parts)
    while True:
        pairs = ((rank(a, b), place) for place, (a, b) in enumerate(pairwise(left)))
        ranked = [(found, place) for found, place in pairs if found is not None]
        if not ranked:
            return
        _, place = min(ranked)
        yield left[place], left[place + 1]
        left[place : place + 2] = [left[place] + left[place + 1]]


def bracketed(tokenizer: Tokenizer, begin: str, end: str) -> Tokenizer:
    """Add a special token at the beginning and end of encoded blocks; "" adds none."""
    symbols = [symbol for symbol in dict.fromkeys((begin, end)) if symbol]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}".strip(),
        special_tokens=[(symbol, tokenizer.token_to_id(symbol)) for symbol in symbols],
    )
    return tokenizer


def ends(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the special tokens that begin and end a block, at most one each."""
    specials = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    ordinary = min((t, index) for t, index in tokenizer.get_vocab().items() if t not in specials)
    token = decode(tokenizer, [ordinary[1]])
    with _panics("the tokenizer cannot encode its own token"):
        alone = tokenizer.encode(token, add_special_tokens=False).ids
        whole = tokenizer.encode(token, add_special_tokens=True).ids
    added = len(whole) - len(alone)
    before = next((i for i in range(added + 1) if whole[i : i + len(alone)] == alone), 0)
    if before > 1 or added - before > 1:
        raise ValueError(f"the tokenizer must add at most one special token per end, got {added}")
    return whole[:before], whole[len(whole) - (added - before) :]


def by_name(name: str, cache: Path, *, on_progress: Progress | None = None) -> Tokenizer:
    """Return `bytes`, `gpt2` (downloaded once), `mdlm-text8`, or the tokenizer of a file."""
    if name == "bytes":
        return byte_level()
    if name == "mdlm-text8":
        return mdlm_text8()
    if name != "gpt2":
        if not Path(name).exists():
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
    """Read a tokenizer.json; its ids must be 0 … n - 1."""
    require_regular(path)
    if (size := path.stat().st_size) > LARGEST:
        raise ValueError(f"{path} must have at most {LARGEST:,} bytes, got {size:,}")
    content = path.read_bytes()
    _require_modest(parse_json(content, f"{path} is not a tokenizer: it"), path)
    try:
        with _panics("it was not expected"):
            tokenizer = Tokenizer.from_str(content.decode("utf-8"))
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"{path} is not a tokenizer: {one_line(error)}") from error
    vocabulary = tokenizer.get_vocab()
    if not vocabulary:
        raise ValueError(f"{path} has no tokens")
    last = len(vocabulary) - 1
    if strange := set(vocabulary.values()) ^ set(range(last + 1)):
        raise ValueError(
            f"{path} has {last + 1} tokens; their ids must be 0 … {last}, each once, "
            f"which is wrong for {min(strange)}"
        )
    if strange_names := _undefined(tokenizer):
        raise ValueError(
            f"{path} adds a special token that it does not define: {shown(min(strange_names))}"
        )
    return tokenizer


LARGEST = 2**27
"""Bytes of a tokenizer.json; the largest published ones have a quarter of it."""
LONGEST_SETTING = 2_000
"""Characters of a setting, such as a pattern or a prefix."""
MOST_GROWTH = 64
"""How many times longer replacements may make a text."""
LISTS = {"vocab", "merges", "added_tokens", "special_tokens", "precompiled_charsmap"}
"""The long parts of a tokenizer.json, which are as large as they look."""


def _require_modest(state: Any, path: Path) -> None:
    """Raise an error if a small file makes long texts: by padding, replacements or a prefix."""
    if not isinstance(state, dict):
        raise ValueError(
            f"{path} is not a tokenizer: it must hold one JSON object, got {type(state).__name__}"
        )
    padding = state.get("padding")
    strategy = padding.get("strategy") if isinstance(padding, dict) else None
    if strategy not in (None, "BatchLongest"):
        raise ValueError(f"{path}: padding must not have a fixed length, got {shown(strategy)}")
    growth, pending = {"normalizer": 1, "decoder": 1}, [("", state)]
    while pending:
        part, value = pending.pop()
        if isinstance(value, str) and len(value) > LONGEST_SETTING:
            raise ValueError(
                f"{path}: a setting must have at most {LONGEST_SETTING:,} characters, "
                f"got {len(value):,}"
            )
        if isinstance(value, dict):
            if part in growth and value.get("type") == "Replace":
                pattern = value.get("pattern")
                anywhere = isinstance(pattern, dict) and "Regex" in pattern  # even at no character
                growth[part] *= max(1, len(str(value.get("content"))) + anywhere)
            pending += [(part or name, v) for name, v in value.items() if name not in LISTS]
        elif isinstance(value, list):
            pending += [(part, each) for each in value]
    for part, times in growth.items():
        if times > MOST_GROWTH:
            raise ValueError(
                f"{path}: the {part}'s replacements must make texts at most {MOST_GROWTH} times "
                f"longer, got {shown(times)}"
            )


@contextmanager
def _panics(what: str) -> Iterator[None]:
    """Turn a panic of the tokenizers library, which is not an Exception, into a ValueError."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{what}: the tokenizers library failed: {one_line(error)}") from error


def _undefined(tokenizer: Tokenizer) -> set[str]:
    """Return special tokens that a template uses but does not define.

    The tokenizers library panics on them.
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
    """Turn text into token ids; raise an error if they do not decode to the same text."""
    ids: list[int] = []
    for piece in _pieces(tokenizer, text):
        try:
            with _panics("the text cannot be encoded"):
                encoded = tokenizer.encode(piece, add_special_tokens=False).ids
        except Exception as error:  # bare Exception, if there is no unknown token
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
            "the tokenizer does not decode to the same text (does it change case or spaces?); "
            "use another one"
        )
    inside = f"; it has {''.join(sorted(known))!r}" if len(known) <= 40 else ""
    return (
        f"the text has characters outside the model's vocabulary: {cut(''.join(strange))!r}{inside}"
    )


PIECE = 1 << 15
"""Characters of a long text encoded at a time; the library needs 400 bytes for each."""

GPT2_CUT = re.compile(r"""(?<=[\w.,;:!?)'"])[ \n]""")
"""Places where GPT-2's pattern always splits: a space or newline after a word or sign."""


def _pieces(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    """Cut a long text where tokens on both sides are independent, if there are such places."""
    begin = 0
    if len(text) > PIECE and (cut := _cut(tokenizer)) is not None:
        added = tokenizer.get_added_tokens_decoder().values()
        apart = not any(token.content in text for token in added)  # an added token must not be cut
        while apart and (found := cut.search(text, begin + PIECE)):
            yield text[begin : found.start()]
            begin = found.start()
    yield text[begin:]


def _cut(tokenizer: Tokenizer) -> re.Pattern[str] | None:
    """Return the pattern of places where texts may be cut without changing the tokens.

    None if the tokenizer is of an unknown kind.
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
    with _panics("the tokens cannot be decoded"):
        text: str = tokenizer.decode(ids, skip_special_tokens=False)
    return text


SPACE = "▁"
"""The space of sentence pieces."""
BEGIN = 1
"""The piece that begins every text of a llama2.c model and thereby ends the previous one."""
END = "<s>"
BYTES = range(3, 259)
"""Pieces of single bytes, for characters without a piece."""


@dataclass(frozen=True)
class Pieces:
    """The table of a llama2.c tokenizer.bin."""

    texts: Sequence[bytes]
    scores: Sequence[float]
    """Merge priorities; higher scores merge first."""

    @classmethod
    def read(cls, data: bytes, count: int, name: str) -> Pieces:
        """Read a table of `count` pieces."""
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
        """Return the text of a piece; None for single bytes other than the newline."""
        if piece in BYTES:
            byte = piece - BYTES.start
            return chr(byte) if byte == 10 else None
        return self.texts[piece].decode("utf-8").replace(" ", SPACE)

    def whole(self) -> Tokenizer:
        """Make the tokenizer of all pieces, with bytes as fallback."""
        special = {0: "<unk>", BEGIN: END, 2: "</s>"}
        written = {p: f"<0x{p - BYTES.start:02X}>" for p in BYTES} | special
        texts = [written.get(p) or str(self.written(p)) for p in range(len(self.texts))]
        vocabulary: dict[str, int] = {}
        for piece, text in enumerate(
            texts
        ):  # the first of two pieces with the same text has the text
            vocabulary.setdefault(text if text not in vocabulary else f"<{piece}>", piece)
        plain = {t: p for t, p in vocabulary.items() if p >= BYTES.stop}
        model = models.BPE(vocabulary, self._merges(plain), unk_token="<unk>", byte_fallback=True)
        tokenizer = _spaced(Tokenizer(model), [decoders.ByteFallback()])
        tokenizer.add_special_tokens([AddedToken(text) for text in special.values()])
        return bracketed(tokenizer, "", END)

    def _merges(self, vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
        """List the merges, highest score first."""
        merges = [
            (-self.scores[piece], text[:i], text[i:])
            for text, piece in vocabulary.items()
            for i in range(1, len(text))
            if text[:i] in vocabulary and text[i:] in vocabulary
        ]
        return [(a, b) for _, a, b in sorted(merges)]

    def tokenizer(self, kept: Sequence[int]) -> Tokenizer:
        """Make the tokenizer of some pieces, in this order, followed by the end of a text."""
        written = [self.written(piece) for piece in kept]
        if None in written or len(set(written)) < len(written):
            raise ValueError("kept pieces must be distinct and no single bytes")
        vocabulary = {str(text): index for index, text in enumerate(written)}
        merges = self._merges({str(text): p for text, p in zip(written, kept, strict=True)})
        tokenizer = _spaced(Tokenizer(models.BPE(vocabulary, merges)), [])
        tokenizer.pre_tokenizer = pre_tokenizers.Split(SPACE, "merged_with_next")
        tokenizer.add_special_tokens([AddedToken(END)])
        return bracketed(tokenizer, "", END)


def _spaced(tokenizer: Tokenizer, inner: list[Any]) -> Tokenizer:
    """Add a space before a text, and write spaces as sentence pieces do."""
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), *inner, decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def within(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer for text inside another text, which adds no space at the beginning.

    A tokenizer that never adds one is returned unchanged.
    """
    state: dict[str, Any] = json.loads(tokenizer.to_str())
    prepended, stripped = _without(state["normalizer"]), _without(state["decoder"])
    if prepended == state["normalizer"]:
        return tokenizer
    return Tokenizer.from_str(json.dumps({**state, "normalizer": prepended, "decoder": stripped}))


def _without(part: Any) -> Any:
    """Remove the steps that prepend a space and strip it again."""
    if not isinstance(part, dict):
        return part
    for name in ("normalizers", "decoders"):
        if name in part:
            return {**part, name: [_without(p) for p in part[name] if _without(p) is not None]}
    return None if part["type"] in ("Prepend", "Strip") else part


def spaced(tokenizer: Tokenizer) -> bool:
    """Whether tokens of words include the space before them, such as '▁cat' and 'Ġcat'."""
    return any(len(text) > 1 and text[0] in (SPACE, "Ġ", " ") for text in tokenizer.get_vocab())
