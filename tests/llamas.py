"""Small llamas that tests make up, as llama2.c and transformers would write them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

from dsl.apps.stories import corpus as stories
from dsl.checkpoints.llama import read_llama2c
from dsl.data.tokenizers import BYTES, Pieces

SMALL = {"width": 16, "inner": 24, "blocks": 2, "heads": 4, "groups": 2, "v": 300, "length": 24}


def llama2c(*, tied: bool = True, **changes: int) -> bytes:
    """Write a random network in the format of llama2.c."""
    s = SMALL | changes
    d = s["width"] // s["heads"]
    header = (s["width"], s["inner"], s["blocks"], s["heads"], s["groups"],
              s["v"] if tied else -s["v"], s["length"])  # fmt: skip
    random = np.random.default_rng(0)
    w, n, g = s["width"], s["blocks"], s["groups"] * d
    matrices = [(s["v"], w), (n, w), (n, w, w), (n, g, w), (n, g, w), (n, w, w), (n, w),
                (n, s["inner"], w), (n, w, s["inner"]), (n, s["inner"], w), (w,),
                (s["length"], d // 2), (s["length"], d // 2)]  # fmt: skip
    if not tied:
        matrices.append((s["v"], w))
    body = b"".join((random.normal(size=shape) * 0.5).astype("<f4").tobytes() for shape in matrices)
    return struct.pack("<7i", *header) + body


def tokenizer_bin(words: list[str]) -> bytes:
    """Write a table of pieces: three specials, 256 bytes, characters, then words by their score."""
    specials = [b"<unk>", b"\n<s>\n", b"\n</s>\n"]
    pieces = [(p, 0.0) for p in specials] + [(bytes([b]), 0.0) for b in range(256)]
    letters = sorted({c for word in words for c in word if c != "\n"})
    merged = [word for word in words if len(word) > 1]
    pieces += [(word.encode(), -1.0 - i) for i, word in enumerate(merged)]
    pieces += [(c.encode(), -1e9) for c in letters]
    table = struct.pack("<i", max(len(p) for p, _ in pieces))
    for text, score in pieces:
        table += struct.pack("<fi", score, len(text)) + text
    return table


def transformers_config(**changes: Any) -> dict[str, Any]:
    """Return the config of a small llama of transformers."""
    return {
        "vocab_size": 60,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **changes,
    }


WORDS = [" the", "t", "h", "e", " t", " th", " cat", " c", " ca", "a", "c", " ", ".", "at"]


def small_teacher(cache: Path) -> None:
    """Put a teacher that knows few words into the place of the real one."""
    count = 259 + sum(len(w) > 1 for w in WORDS) + len({c for w in WORDS for c in w})
    source = read_llama2c(llama2c(v=count), "it")
    pieces = Pieces.read(tokenizer_bin(WORDS), count, "it")
    kept = list(range(BYTES.stop, count))
    stories.write_teacher(cache / "teachers" / stories.NAME, source, pieces, kept)
