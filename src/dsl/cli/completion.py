"""`dsl completion`: what a shell needs to complete commands and their options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal

import tyro

from dsl.cli.options import parse


@dataclass(frozen=True)
class CompletionOptions:
    """Print a completion script.

    For this shell: source <(dsl completion bash). For every one to come, write it where your shell
    looks: ~/.local/share/bash-completion/completions/dsl for bash, _dsl on the fpath for zsh.
    """

    shell: tyro.conf.Positional[Literal["bash", "zsh", "tcsh"]]
    """Whose script to print."""


def main(arguments: Sequence[str]) -> None:
    """Describe all commands to tyro as one, and let it write the script."""
    options = parse(CompletionOptions, "completion", arguments)
    from dsl.cli.main import VERBS

    commands = {
        verb: getattr(import_module(f"dsl.cli.{verb}"), f"{verb.capitalize()}Options")
        for verb in VERBS
    }
    tyro.extras.subcommand_cli_from_dict(
        commands, prog="dsl", args=["--tyro-print-completion", options.shell]
    )
