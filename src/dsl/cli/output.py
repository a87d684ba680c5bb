"""Standard output: adapt to the terminal's encoding, and report failed writes."""

from __future__ import annotations

import codecs
import io
import os
import sys

SPELLED = {"±": "+/-", "…": "...", "│": "|", "─": "-", "␣": "_", "γ": "g", "Γ": "G"}
"""ASCII replacements of some characters; all others become question marks."""


def suit_the_terminal() -> None:
    """Replace characters that the terminal cannot encode, rather than fail after the work."""
    codecs.register_error("dsl-spelled", _spelled)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="dsl-spelled")


def say(text: str) -> int:
    """Print a text; return 0, or a nonzero status if printing failed."""
    try:
        print(text, flush=True)
    except OSError as error:
        return _lost(error)
    return 0


def delivered(status: int) -> int:
    """Flush standard output; return the status, or an error status if the write failed.

    A nonzero status has been reported already, so nothing is added to it.
    """
    try:
        if sys.stdout is not None:  # None if the shell has closed it
            sys.stdout.flush()
    except OSError as error:
        if not status:
            return _lost(error)
        drop_output()
    return status


def drop_output() -> None:
    """Discard buffered output, or the interpreter would fail on it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _lost(error: OSError) -> int:
    drop_output()
    if isinstance(error, BrokenPipeError):  # the reader has exited (`dsl … | head`)
        return 141
    print(f"dsl: the output could not be written: {error}", file=sys.stderr)
    return 1


def _spelled(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(SPELLED.get(character, "?") for character in lacking), error.end
