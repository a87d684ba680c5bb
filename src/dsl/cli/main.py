"""The `dsl` command: find the verb, run it, and turn a user's mistake into one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from dsl import __version__
from dsl.cli.memory import keep_freed_memory

VERBS = {
    "data": "Fetch, verify and describe a corpus.",
    "train": "Train a model by a recipe, or go on with a run that was stopped.",
    "sample": "Draw sequences along any path through SNR space.",
    "infill": "Fill the gaps of a text.",
    "likelihood": "Score a corpus with every likelihood estimator, and audit them.",
    "calibrate": "Measure whether a model's confidence can be believed.",
    "evaluate": "Measure samples against real text, with errors and a protocol.",
    "compare": "Compare models and samplers over steps and seeds: table and figure.",
    "figure": "Draw training curves or a comparison from files.",
    "convert": "Turn an MDLM checkpoint into a DSL model.",
    "export": "Write a model for the Auto classes of transformers.",
    "bench": "Measure the speed, overhead and exactness of samplers.",
    "demo": "See the bundled model along five paths, and write a report with pictures.",
    "completion": "Print a script that completes commands and options in a shell.",
    "toy": "Watch the cyclic toy localize, and check what was drawn against the truth.",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"dsl {__version__}")
        return 0
    verb, *rest = arguments
    if verb not in VERBS:
        print(f"dsl: {verb!r} is not a command\n\n{usage()}", file=sys.stderr)
        return 2
    return run(verb, rest)


def usage() -> str:
    """Describe the command line. Nothing here imports torch, so help answers at once."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {line}" for name, line in VERBS.items())
    return (
        "usage: dsl COMMAND [OPTIONS]\n\n"
        "Discrete Stochastic Localization: diffusion language models over continuous token "
        f"states.\n\ncommands:\n{verbs}\n\n"
        "dsl COMMAND --help describes a command; dsl --version prints the version."
    )


def run(verb: str, arguments: Sequence[str]) -> int:
    """Run a verb, answering mistakes with one line and interrupts with silence.

    DSL_TRACEBACK=1 shows where an error came from.
    """
    keep_freed_memory()
    try:
        import_module(f"dsl.cli.{verb.replace('-', '_')}").main(arguments)
    except BrokenPipeError:
        # The reader has left (`dsl … | head`); what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        if os.environ.get("DSL_TRACEBACK"):
            raise
        print(f"dsl {verb}: {error}", file=sys.stderr)
        return 1
    return 0
