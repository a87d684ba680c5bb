"""Tokenizers as tokenizer.json: the `tokenizers` library does the work, we write the tables."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

TOKENIZER = "tokenizer.json"


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
        known = set("".join(tokenizer.get_vocab()))
        strange = sorted({character for character in text if character not in known})
        listed = f": {''.join(strange)!r}" if strange else ""
        raise ValueError(f"the text has characters outside the model's vocabulary{listed}")
    ids: list[int] = encoded.ids
    return ids


def decode(tokenizer: Tokenizer, ids: list[int]) -> str:
    """Turn token ids into text, special tokens included."""
    text: str = tokenizer.decode(ids, skip_special_tokens=False)
    return text
