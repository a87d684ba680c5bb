"""`dsl train`: train a model from a recipe, or resume a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import tyro

from dsl._util.defaults import recipe_names
from dsl.cli.options import parse


@dataclass(frozen=True)
class Options:
    """Train a model from a recipe. The same command resumes an interrupted run.

    --set overrides any field of the recipe: --set trainer.steps=100 --set optimizer.lr=1e-3. With
    --set objective=FAMILY the same recipe trains a model of another family,
    --set data.tokenizer=bpe-2048 learns a tokenizer from the corpus, and
    --set data.windows=documents makes every block a document. Under torchrun or accelerate launch
    the batch is split across processes.

    Example: dsl train text8-tiny --out runs/text8 --set trainer.steps=1000
    """

    choices: ClassVar[dict[str, str | list[str]]] = {
        "Recipes": recipe_names(),
        "Families": "dsl.families",
    }
    recipe: tyro.conf.Positional[str]
    """YAML file, or the name of a bundled recipe."""
    out: Path
    """Run directory: recipe, log, checkpoints, and finally the model."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Override a recipe field, key=value; repeatable."""
    smoke: bool = False
    """Shorten the run to a quick test."""
    init: str | None = None
    """Initial weights: checkpoint directory, hub id, or bundled model. A character-level DSL
    model is converted to the characters of the corpus."""
    device: str | None = None
    """cpu, cuda or cuda:N. Default: a GPU if available."""
    cache: Path | None = None
    """Cache directory for corpora."""
    tensorboard: bool = False
    """Also write a TensorBoard log to the run directory."""


def main(arguments: Sequence[str]) -> None:
    """Read the recipe, train, and print the model's path."""
    options = parse(Options, "train", arguments)
    from dsl._util.processes import this_process
    from dsl.cli.training_log import Log
    from dsl.training import Watch, train
    from dsl.training import recipe as recipes
    from dsl.training.run import LOG

    recipe = recipes.read(recipes.find(options.recipe), options.set, smoke=options.smoke)
    board = options.out / "tensorboard" if options.tensorboard else None
    main_process = this_process().rank == 0
    with Log(options.out / LOG, recipe.trainer.steps, visible=main_process, board=board) as log:
        trained = train(
            recipe,
            options.out,
            init=options.init,
            cache=options.cache,
            device=options.device,
            watch=Watch(log.say, log.record, log.prepared),
        )
    if not main_process:
        return
    if trained.finished:
        print(f"trained to step {trained.step}: {trained.model}")
    else:
        print(f"stopped at step {trained.step}; resume with: dsl train {shlex.join(arguments)}")
