"""Tokenizers as tokenizer.json: the `tokenizers` library does the work, we write the tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
)

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
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def byte_level() -> Tokenizer:
    """Make a tokenizer with one token for each byte of UTF-8, its id the byte: any text fits."""
    vocabulary = {character: byte for byte, character in enumerate(_byte_characters())}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=_byte_characters()[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"),
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
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
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
    """Let blocks begin and end with these specials; the tokenizer's file remembers it."""
    ids = [(symbol, tokenizer.token_to_id(symbol)) for symbol in dict.fromkeys((begin, end))]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", special_tokens=ids
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
                f"unknown tokenizer {name!r}; expected characters, bytes, gpt2, mdlm-text8 "
                f"or the path of a {TOKENIZER}"
            )
        return read(Path(name))
    path = cache / "tokenizers" / "gpt2.json"
    if not path.is_file():
        tokenizer = gpt2(sources.gpt2_ranks(on_progress or (lambda *_: None)))
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        tokenizer.save(str(part))
        os.replace(part, path)
    return read(path)


def read(path: Path) -> Tokenizer:
    """Read a tokenizer.json."""
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"{path} is not a tokenizer: {error}") from error


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Turn text into token ids, refusing what the tokenizer cannot say."""
    encoded = tokenizer.encode(text, add_special_tokens=False)
    if tokenizer.decode(encoded.ids, skip_special_tokens=False) != text:
        specials = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        known = set("".join(token for token in tokenizer.get_vocab() if token not in specials))
        strange = sorted({character for character in text if character not in known})
        if not strange:
            raise ValueError(
                "the tokenizer does not give back the text it was given (does it change case or "
                "spaces?); use one that does"
            )
        listed, inside = repr("".join(strange)), ""
        if len(known) <= 40:
            inside = f"; it knows {''.join(sorted(known))!r}"
        raise ValueError(
            f"the text has characters outside the model's vocabulary: {listed}{inside}"
        )
    ids: list[int] = encoded.ids
    return ids


def decode(tokenizer: Tokenizer, ids: list[int]) -> str:
    """Turn token ids into text, special tokens included."""
    text: str = tokenizer.decode(ids, skip_special_tokens=False)
    return text
