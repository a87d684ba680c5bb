"""`dsl train`: run a recipe, or go on with a run that was stopped."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from dsl.cli.options import parse


@dataclass(frozen=True)
class TrainOptions:
    """Train a model by a recipe. The same command goes on where a stopped run was.

    Any field of the recipe can be changed: --set trainer.steps=100 --set optimizer.lr=1e-3; with
    --set objective=mdlm, ar or vp the same recipe trains a model of another family. With
    --set data.tokenizer=bpe-2048 a tokenizer is learned from the corpus, and with
    --set data.windows=documents a block is a document. Under torchrun or accelerate launch the
    batch is shared by the processes.
    """

    recipe: tyro.conf.Positional[str]
    """A YAML file, or a recipe that comes with the package: cyclic, text8-tiny,
    text8-tiny-finetune, english-tiny, text8 or owt-finetune."""
    out: Path
    """The run's directory: recipe, log, checkpoints, and at the end the model."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A change of the recipe, key=value; may be given several times."""
    smoke: bool = False
    """Make the run as short as a test."""
    init: str | None = None
    """Begin with the weights of a checkpoint: a directory, a hub id, or a bundled model's name."""
    device: str | None = None
    """cpu, cuda or cuda:N; a GPU if there is one, when not given."""
    cache: Path | None = None
    """Where corpora are kept."""
    tensorboard: bool = False
    """Write the log for TensorBoard too, into the run's directory."""


def main(arguments: Sequence[str]) -> None:
    """Read the recipe, train, say where the model is."""
    options = parse(TrainOptions, "train", arguments)
    from dsl import recipes
    from dsl.cli.training_log import Log
    from dsl.processes import rank
    from dsl.runs import LOG, Watch, train

    recipe = recipes.read(recipes.find(options.recipe), options.set, smoke=options.smoke)
    board = options.out / "tensorboard" if options.tensorboard else None
    with Log(options.out / LOG, recipe.trainer.steps, visible=rank() == 0, board=board) as log:
        trained = train(
            recipe,
            options.out,
            init=options.init,
            cache=options.cache,
            device=options.device,
            watch=Watch(log.say, log.record, log.prepared),
        )
    if rank() > 0:
        return
    if trained.finished:
        print(f"trained to step {trained.step}: {trained.model}")
    else:
        print(f"stopped at step {trained.step}; go on with: dsl train {shlex.join(arguments)}")
