"""Text cut into blocks of one length."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from dsl.types import Tokens

Encode = Callable[[str], list[int]]


def read_texts(path: Path, *, separate_lines: bool) -> list[str]:
    """Read a text file, or the "text" of every line of a .jsonl file.

    A vocabulary without a newline cannot hold two lines, so `separate_lines` makes each a text.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no corpus at {str(path)!r}")
    try:
        content = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    if path.suffix != ".jsonl":
        return content.split("\n") if separate_lines else [content]
    texts = []
    # not splitlines(), which would also cut inside texts, at characters JSON leaves as they are
    for number, line in enumerate(content.removesuffix("\n").split("\n"), 1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}, is not JSON: {error}") from error
        if isinstance(record, dict) and isinstance(record.get("text"), str):
            texts.append(record["text"])
        elif not (number == 1 and isinstance(record, dict) and "about" in record):
            raise ValueError(f'{path}, line {number}, has no "text"')
    return texts


def cut(texts: Iterable[str], encode: Encode, length: int) -> Tokens:
    """Encode every text and cut it into blocks; what is left of each is dropped."""
    rows, tokens = [], 0
    for text in texts:
        ids = encode(text)
        tokens += len(ids)
        whole = len(ids) - len(ids) % length
        rows += [ids[begin : begin + length] for begin in range(0, whole, length)]
    if not rows:
        raise ValueError(
            f"the corpus is shorter than a block: it has {tokens} tokens, a block {length}"
        )
    return torch.tensor(rows)
