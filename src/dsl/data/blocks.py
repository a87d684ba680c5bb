"""Read text files, and cut text into blocks of one length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch

from dsl._util.files import parse_json
from dsl.core.types import Tokens

Encode = Callable[[str], list[int]]


def read_texts(path: Path, *, separate_lines: bool) -> list[str]:
    """Read a text file, or the "text" of every line of a .jsonl file.

    `separate_lines` makes every line a text, for vocabularies without a newline.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no corpus at {str(path)!r}")
    if path.suffix == ".jsonl":
        return list(json_texts(path))
    try:
        content = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    return content.split("\n") if separate_lines else [content]


def json_texts(path: Path) -> Iterator[str]:
    """Yield the "text" of every line of a .jsonl file; the first line may be an "about" record."""
    with path.open("rb") as file:  # in bytes mode only a newline ends a line
        for number, line in enumerate(file, 1):
            where = f"{path}, line {number},"
            record = parse_json(line, where)
            if isinstance(record, dict) and isinstance(record.get("text"), str):
                yield record["text"]
            elif not (number == 1 and isinstance(record, dict) and "about" in record):
                raise ValueError(f'{where} has no "text"')


def cut(
    texts: Iterable[str],
    encode: Encode,
    length: int,
    ends: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Tokens:
    """Encode texts and cut each into blocks that begin and end with special tokens.

    The remainder of each text is dropped.
    """
    rows: list[list[int]] = []
    tokens, payload = 0, length - len(ends[0]) - len(ends[1])
    if payload < 1:
        raise ValueError(f"a block of {length} tokens has no room for text")
    for text in texts:
        ids = encode(text)
        tokens += len(ids)
        whole = len(ids) - len(ids) % payload
        pieces = (ids[begin : begin + payload] for begin in range(0, whole, payload))
        rows += [[*ends[0], *piece, *ends[1]] for piece in pieces]
    if not rows:
        raise ValueError(
            f"the corpus is shorter than a block: it has {tokens} tokens, a block {payload}"
        )
    return torch.tensor(rows)
