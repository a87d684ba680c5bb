"""How parsers are fuzzed: how many cases each gets, how cases are made, and what must hold of all.

The cases are the same in every run, so that a failure is the code's; DSL_FUZZ_FRESH=1 draws others.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

T = TypeVar("T")

CASES = {
    "names": 3000,
    "gaps": 2500,
    "recipes": 2500,
    "changes": 2000,
    "sampler_files": 2000,
    "configs": 1800,
    "tokenizers": 1500,
    "samples": 2000,
    "corpora": 1200,
    "checkpoints": 1500,
    "contours": 1500,
    "json": 2000,
    "figures": 1000,
}
"""Cases of each test file, by the name that follows test_ in its own."""

SECONDS = 30.0
"""Of processor time: how long a case waits for others on the machine is not its fault."""
CHARACTERS = 600
"""Of a message that people can still read."""


def refused_or_read(parse: Callable[[], object]) -> None:
    """Require that input is read, or refused in one short line, and either soon."""
    began = time.process_time()
    try:
        parse()
    except (ValueError, OSError) as error:
        message = str(error)
        assert message and "\n" not in message, f"not one line: {message!r}"
        assert len(message) <= CHARACTERS, f"{len(message)} characters: {message[:200]}…"
    assert time.process_time() - began < SECONDS


def fuzz(
    name: str,
    strategy: st.SearchStrategy[T],
    parse: Callable[[T], object],
    found: Iterable[T] = (),
    share: float = 1.0,
) -> None:
    """Try many cases.

    Args:
        name: The key of `CASES`.
        strategy: Makes the cases.
        parse: What must read or refuse each.
        found: Cases that once broke it.
        share: Of the cases, where a file has several tests.
    """
    wanted, done = round(CASES[name] * share), 0

    def one(case: T) -> None:
        nonlocal done
        done += 1
        refused_or_read(lambda: parse(case))

    test = given(case=strategy)(one)
    for case in found:
        test = example(case=case)(test)
    chosen = settings(
        max_examples=wanted,
        deadline=None,
        database=None,
        derandomize="DSL_FUZZ_FRESH" not in os.environ,
        suppress_health_check=list(HealthCheck),
    )
    chosen(test)()
    assert done >= wanted, f"only {done} different cases of {wanted}"


ODD = ["", " ", "\t", "\n", "\0", "-1", "0", "1e400", "-1e-310", "nan", ".nan", "inf", "Infinity",
       "NaN", "null", "true", "9" * 30, "9" * 5000, "1_0", "0x", "é", "٣", "\ud7ff", "\U0001f642",
       "\u202e", "[" * 60, "{" * 60, "{\"a\":" * 60, "]", "}", "\"", "'", "\\", "\\ud800", ",", ":",
       "=", "@", "+", "[3]", "&a [*a]", "*a", "<<: ", "!!int ", "- ", "? ", "|", ">", "%", "#",
       "../", "kind", "x" * 2000]  # fmt: skip
"""What parsers trip over."""

ODD_BYTES = [*(piece.encode() for piece in ODD), b"\xff", b"\xfe\xff", b"\xc3\x28", b"\xed\xa0\x80",
             bytes(8), b"PK\x03\x04", b"PAR1", b"\x80\x04"]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, valid: Sequence[bytes]) -> bytes:
    """Damage something valid: bytes flipped, cut off, cut out, repeated, put in."""
    data = draw(st.sampled_from(valid))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.sampled_from([1, 1, 2, 8, 64, 4096])))
        how = draw(st.sampled_from(["flip", "truncate", "cut", "repeat", "line", "put", "replace"]))
        if how == "flip":
            flipped = bytes(byte ^ draw(st.integers(1, 255)) for byte in data[begin : begin + 1])
            data = data[:begin] + flipped + data[begin + 1 :]
        elif how == "truncate":
            data = data[:begin]
        elif how == "cut":
            data = data[:begin] + data[end:]
        elif how == "repeat":
            data = data[:end] + data[begin:end] * draw(st.sampled_from([1, 1, 2, 50])) + data[end:]
        elif how == "line":
            lines = data.splitlines(keepends=True) or [b""]
            place = draw(st.integers(0, len(lines) - 1))
            lines.insert(draw(st.integers(0, len(lines))), lines[place])
            data = b"".join(lines)
        else:
            odd = draw(st.sampled_from(ODD_BYTES))
            data = data[:begin] + odd + data[begin if how == "put" else end :]
    return data[: 1 << 20]


def texts(valid: Sequence[str]) -> st.SearchStrategy[str]:
    """Damage a text; what is no UTF-8 any more becomes something that is."""
    damaged = mutated([text.encode() for text in valid])
    return damaged.map(lambda data: data.decode("utf-8", errors="replace"))


anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([-1, 2**31, 2**63, 10**23, 10**400, 1e300, 1e-310, -0.0])
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(max_size=8)
    | st.sampled_from(ODD),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
"""Data of any shape."""


@st.composite
def swapped(draw: st.DrawFn, valid: Sequence[Any]) -> Any:
    """Put another value, type or key into something valid, once or twice."""
    data = json.loads(json.dumps(draw(st.sampled_from(valid))))
    for _ in range(draw(st.integers(1, 2))):
        data = draw(_swap(data))
    return data


@st.composite
def _swap(draw: st.DrawFn, data: Any) -> Any:
    keys = (
        list(data)
        if isinstance(data, dict)
        else list(range(len(data)))
        if isinstance(data, list)
        else []
    )
    if not keys or draw(st.integers(0, 9)) == 0:
        return draw(anything)
    key = draw(st.sampled_from(keys))
    how = draw(st.sampled_from(["inside", "inside", "replace", "remove", "add"]))
    if how == "inside":
        data[key] = draw(_swap(data[key]))
    elif how == "replace":
        data[key] = draw(anything)
    elif how == "remove":
        del data[key]
    elif isinstance(data, dict):
        data[draw(st.text(max_size=8) | st.sampled_from([*map(str, keys), *ODD]))] = draw(anything)
    else:
        data.append(draw(anything))
    return data


def dumped(data: Any) -> bytes:
    """Write data as JSON, with NaN and infinity, which Python's reader takes."""
    return json.dumps(data, indent=1, ensure_ascii=False).encode("utf-8", errors="replace")
