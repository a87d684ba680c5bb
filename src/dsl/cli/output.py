"""What is printed: it suits any terminal, and either arrives or is reported missing."""

from __future__ import annotations

import codecs
import io
import os
import sys

SPELLED = {"±": "+/-", "…": "...", "│": "|", "─": "-", "␣": "_", "γ": "g", "Γ": "G"}
"""How an ASCII terminal reads some characters; of others it gets a question mark."""


def suit_the_terminal() -> None:
    """Spell what the terminal's encoding lacks, rather than fail once the work is done."""
    codecs.register_error("dsl-spelled", _spelled)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="dsl-spelled")


def say(text: str) -> int:
    """Print a text; return 0, or the status of what could not be printed."""
    try:
        print(text, flush=True)
    except OSError as error:
        return _lost(error)
    return 0


def delivered(status: int) -> int:
    """Write out what is still buffered; return the status, or another if it could not be written.

    A status other than 0 has been explained already, so that nothing is added to it.
    """
    try:
        if sys.stdout is not None:  # as it is when the shell has closed it
            sys.stdout.flush()
    except OSError as error:
        if not status:
            return _lost(error)
        drop_output()
    return status


def drop_output() -> None:
    """Send what is still buffered nowhere, or the interpreter would fail on it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _lost(error: OSError) -> int:
    drop_output()
    if isinstance(error, BrokenPipeError):  # the reader has left (`dsl … | head`)
        return 141
    print(f"dsl: the output could not be written: {error}", file=sys.stderr)
    return 1


def _spelled(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(SPELLED.get(character, "?") for character in lacking), error.end
