"""The `dsl` command: find the verb, run it, and turn a user's mistake into one line."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version

from dsl import __version__
from dsl.cli.memory import keep_freed_memory
from dsl.cli.output import delivered, drop_output, say, suit_the_terminal
from dsl.processes import part

VERBS = {
    "data": "Fetch, verify and describe a corpus.",
    "train": "Train a model by a recipe, or go on with a run that was stopped.",
    "sample": "Draw sequences along any path through SNR space.",
    "infill": "Fill the gaps of a text.",
    "correct": "Put doubtful text right, and say how sure each change is.",
    "likelihood": "Score a corpus with every likelihood estimator, and audit them.",
    "calibrate": "Measure whether a model's confidence can be believed.",
    "probe": "Damage held-out text, and count how much of it a model puts right.",
    "evaluate": "Measure samples against real text, with errors and a protocol.",
    "divergence": "Find how far a model is from the known source of its corpus, both ways.",
    "compare": "Compare models and samplers over steps and seeds: table and figure.",
    "figure": "Draw training curves or a comparison from files.",
    "convert": "Turn a pretrained model into a DSL model.",
    "export": "Write a model for the Auto classes of transformers.",
    "bench": "Measure the speed, overhead and exactness of samplers.",
    "demo": "See the bundled model along five paths, and write a report with pictures.",
    "completion": "Print a script that completes commands and options in a shell.",
    "toy": "Watch the cyclic toy localize, and check what was drawn against the truth.",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit status."""
    suit_the_terminal()
    try:
        return delivered(answer(list(sys.argv[1:] if arguments is None else arguments)))
    except SystemExit as stop:  # how tyro ends, after help or a mistake
        status = delivered(1 if stop.code else 0)
        if status and not stop.code:
            raise SystemExit(status) from None
        raise


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
    verb, *rest = arguments
    if verb not in VERBS:
        print(f"dsl: {verb!r} is not a command\n\n{usage()}", file=sys.stderr)
        return 2
    return run(verb, rest)


def usage() -> str:
    """Describe the command line. Nothing here imports torch, so help answers at once."""
    columns, width = shutil.get_terminal_size().columns, max(map(len, VERBS))
    filler = textwrap.TextWrapper(columns, subsequent_indent=" " * (width + 4))
    verbs = "\n".join(filler.fill(f"  {name:<{width}}  {line}") for name, line in VERBS.items())
    about = "Discrete Stochastic Localization: diffusion language models over continuous states."
    return (
        f"usage: dsl COMMAND [OPTIONS]\n\n{textwrap.fill(about, columns)}\n\n"
        f"commands:\n{verbs}\n\n"
        "dsl COMMAND --help describes a command; dsl --version prints the versions."
    )


def run(verb: str, arguments: Sequence[str]) -> int:
    """Run a verb, answering mistakes with one line and interrupts with silence.

    DSL_TRACEBACK=1 shows where an error came from.
    """
    keep_freed_memory()
    try:
        import_module(f"dsl.cli.{verb.replace('-', '_')}").main(arguments)
        part()
    except BrokenPipeError:
        # The reader has left (`dsl … | head`); what is still buffered has nowhere to go.
        drop_output()
        return 141
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError, MemoryError, RuntimeError) as error:
        spent = isinstance(error, MemoryError) or _is_want_of_memory(error)
        if os.environ.get("DSL_TRACEBACK") or (isinstance(error, RuntimeError) and not spent):
            raise
        why = "not enough memory; ask for less at a time" if spent else _one_line(error)
        print(f"dsl {verb}: {why}", file=sys.stderr)
        return 1
    return 0


LONGEST = 600
"""Characters of a message, which may repeat what somebody wrote."""


def _one_line(error: BaseException) -> str:
    text = " ".join(line.strip() for line in str(error).splitlines())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _is_want_of_memory(error: BaseException) -> bool:
    """Whether torch could not allocate a tensor: on a CPU it has no class for that."""
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
