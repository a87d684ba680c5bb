"""The `dsl` command: find the verb, run it, and turn a user's mistake into one line."""

from __future__ import annotations

import codecs
import ctypes
import difflib
import io
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from dsl import __version__
from dsl._util.processes import leave
from dsl._util.registry import Registry

VERBS: Registry[Any] = Registry("dsl.verbs", "command")
"""The modules of all commands. The first line of a module's docstring describes its command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit status."""
    try:
        open_closed_streams()
        suit_the_terminal()
        return delivered(answer(list(sys.argv[1:] if arguments is None else arguments)))
    except SystemExit as stop:  # how tyro ends, after help or a mistake
        status = delivered(1 if stop.code else 0)
        if status and not stop.code:
            raise SystemExit(status) from None
        raise
    except KeyboardInterrupt:  # before the verb began
        print("interrupted", file=sys.stderr)
        return 130


def answer(arguments: Sequence[str]) -> int:
    """Describe the command itself, or run the verb; return the exit status."""
    for place, argument in enumerate(arguments, 1):
        if any("\ud800" <= character <= "\udfff" for character in argument):
            what = os.fsencode(argument)
            print(f"dsl: argument {place} is not valid UTF-8: {what!r}", file=sys.stderr)
            return 2
    if not arguments or arguments[0] in ("-h", "--help"):
        return say(usage())
    if arguments[0] in ("-V", "--version"):
        return say(f"dsl {__version__}, torch {version('torch')}")
    if arguments[0] == COMPLETION:
        return _completion(arguments)
    verb, *rest = arguments
    if verb not in VERBS:
        near = difflib.get_close_matches(verb, VERBS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(VERBS)}"
        print(f"dsl: {verb!r} is not a command; {hint}", file=sys.stderr)
        return 2
    return run(verb, rest)


COMPLETION = "--tyro-print-completion"


def _completion(arguments: Sequence[str]) -> int:
    """Let tyro print a script that completes all commands and options in a shell."""
    import tyro

    commands = {verb: VERBS[verb].Options for verb in VERBS if hasattr(VERBS[verb], "Options")}
    tyro.extras.subcommand_cli_from_dict(commands, prog="dsl", args=list(arguments))
    return 0


def usage() -> str:
    """Return the help of the command line. Torch is not imported, so it stays fast."""
    columns, width = shutil.get_terminal_size().columns, max(map(len, VERBS))
    filler = textwrap.TextWrapper(columns, subsequent_indent=" " * (width + 4))
    verbs = "\n".join(filler.fill(f"  {name:<{width}}  {summary(name)}") for name in VERBS)
    about = "Discrete Stochastic Localization: diffusion language models over continuous states."
    return (
        f"usage: dsl COMMAND [OPTIONS]\n\n{textwrap.fill(about, columns)}\n\n"
        f"commands:\n{verbs}\n\n"
        "dsl COMMAND --help describes a command; dsl --version prints the versions;\n"
        f"dsl {COMPLETION} bash (or zsh, tcsh) prints a completion script."
    )


def summary(verb: str) -> str:
    """Return what a command does, in one line."""
    line = (VERBS[verb].__doc__ or "").partition("\n")[0].partition(": ")[2]
    return line[:1].upper() + line[1:]


def run(verb: str, arguments: Sequence[str]) -> int:
    """Run a verb; a user's mistake is reported in one line.

    DSL_TRACEBACK=1 shows where an error came from.
    """
    keep_freed_memory()
    try:
        VERBS[verb].main(arguments)
        leave()
    except BrokenPipeError:
        # the reader has exited (`dsl … | head`); discard the buffer
        drop_output()
        return 141
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError, MemoryError, RuntimeError) as error:
        spent = isinstance(error, MemoryError) or _is_out_of_memory(error)
        if os.environ.get("DSL_TRACEBACK") or (isinstance(error, RuntimeError) and not spent):
            raise
        why = "not enough memory; use a smaller batch" if spent else _one_line(error)
        print(f"dsl {verb}: {why}", file=sys.stderr)
        return 1
    return 0


LONGEST = 600
"""Maximum number of characters of a message, which may quote user input."""


def _one_line(error: BaseException) -> str:
    text = " ".join(line.strip() for line in str(error).splitlines())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether torch could not allocate a tensor; on a CPU it has no error class for that."""
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)


M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Ask glibc not to return memory to the system between calls; return whether it accepted.

    Returned memory costs page faults in the next call. Older versions keep only blocks up to
    32 MB. Other C libraries are left alone.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # set the mmap threshold first: setting the others disables its adaptation, and if it is
    # rejected afterwards it would stay at its minimum
    if not any(mallopt(M_MMAP_THRESHOLD, size) for size in (2**30, 2**25)):
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, 2**31 - 1)) and bool(mallopt(M_TOP_PAD, 2**26))


SPELLED = {"±": "+/-", "…": "...", "│": "|", "─": "-", "␣": "_", "γ": "g", "Γ": "G"}
"""ASCII replacements of some characters; all others become question marks."""


def open_closed_streams() -> None:
    """Open the null device for standard streams that are closed (`dsl … >&-`).

    Otherwise the next file that is opened would take their place.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


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
