"""`dsl train`: run a recipe, or go on with a run that was stopped."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from dsl.cli.options import parse

MOST_CHARACTERS = 1024
"""The largest alphabet that is taken for one."""

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from dsl.data.corpora import Corpus
    from dsl.models.config import ModelConfig
    from dsl.recipes import Recipe


@dataclass(frozen=True)
class TrainOptions:
    """Train a model by a recipe. The same command goes on where a stopped run was.

    Any field of the recipe can be changed: --set trainer.steps=100 --set optimizer.lr=1e-3. Under
    torchrun or accelerate launch the batch is shared by the processes.
    """

    recipe: tyro.conf.Positional[str]
    """A YAML file, or a recipe that comes with the package: cyclic, text8-tiny,
    text8-tiny-finetune, text8 or owt-finetune."""
    out: Path
    """The run's directory: recipe, log, checkpoints, and at the end the model."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A change of the recipe, key=value; may be given several times."""
    smoke: bool = False
    """Make the run as short as a test."""
    init: str | None = None
    """Begin with the weights of a checkpoint: a directory, a hub id, or a bundled model's name."""
    cache: Path | None = None
    """Where corpora are kept."""
    tensorboard: bool = False
    """Write the log for TensorBoard too, into the run's directory."""


def main(arguments: Sequence[str]) -> None:
    """Read the recipe, build the run, train."""
    options = parse(TrainOptions, "train", arguments)
    from dsl import recipes
    from dsl.cli.processes import locked

    recipe = recipes.read(recipes.find(options.recipe), options.set, smoke=options.smoke)
    options.out.mkdir(parents=True, exist_ok=True)
    with locked(options.out):
        require_same(options.out, recipe)
        if recipe.needs_init and options.init is None and not _begun(options.out):
            raise ValueError(
                f"{options.recipe} fine-tunes a model: say with --init which weights it begins "
                "with (dsl convert mdlm makes them of an MDLM checkpoint)"
            )
        run(recipe, options, arguments)


RECIPE, DATA = "recipe.yaml", "data.json"


def require_same(out: Path, recipe: Recipe) -> None:
    """Refuse a directory of something else, or of another recipe; more steps are fine."""
    from dsl import recipes

    path = out / RECIPE
    if path.exists():
        before = recipes.read(path)
        same = replace(before, trainer=replace(before.trainer, steps=recipe.trainer.steps))
        if changed := recipes.difference(same, recipe):
            raise ValueError(
                f"{out} holds a run of another recipe ({'; '.join(changed)}); choose another --out"
            )
    elif others := sorted(file.name for file in out.iterdir() if file.name != "lock"):
        raise ValueError(f"{out} holds no run, but {others[0]!r}; choose another --out")


def record(out: Path, recipe: Recipe, data: dict[str, str]) -> None:
    """Write down what the run is made of, or refuse to go on with other text than it began with."""
    from dsl import recipes
    from dsl.cli.processes import rank

    if (out / DATA).exists():
        before = json.loads((out / DATA).read_text(encoding="utf-8"))
        changed = [name for name, digest in data.items() if before.get(name) != digest]
        if changed:
            raise ValueError(
                f"the {' and the '.join(changed)} of {recipe.data.corpus} changed since the run in "
                f"{out} began, so its weights would be given other text; choose another --out"
            )
    if rank() == 0:
        for name, text in ((DATA, json.dumps(data, indent=2)), (RECIPE, recipes.write(recipe))):
            part = out / f"{name}.part"
            part.write_text(text, encoding="utf-8")
            os.replace(part, out / name)


def _begun(out: Path) -> bool:
    return any((out / "checkpoints").glob("step-*"))


def run(recipe: Recipe, options: TrainOptions, arguments: Sequence[str]) -> None:
    """Build data, model, objective and validator; train; write the model."""
    import torch
    from accelerate import PartialState
    from rich.console import Console

    from dsl.cli.data import default_cache
    from dsl.cli.processes import rank
    from dsl.cli.training_log import Log
    from dsl.data.corpora import prepare
    from dsl.data.tokenizers import ends
    from dsl.data.windows import Windows, tokenise
    from dsl.loading import write_network
    from dsl.models.config import ModelConfig
    from dsl.scoring import validator
    from dsl.training.trainer import Trainer

    console = Console(stderr=True)
    cache = options.cache or default_cache()
    with (
        PartialState(cpu=not torch.cuda.is_available()).main_process_first(),
        console.status("preparing the data") as status,
    ):

        def told(what: str, done: int, size: int) -> None:
            status.update(f"{what} {done / size:.0%}" if size else what)

        # one process fetches and encodes, the others find it done
        corpus = prepare(recipe.data.corpus, cache, on_progress=told)
        tokenizer = _tokenizer(recipe, corpus, cache)
        tokens = {
            split: tokenise(corpus, split, tokenizer, on_progress=told)
            for split in ("train", "validation")
        }
    length, brackets = recipe.data.length, ends(tokenizer)
    train = Windows(
        tokens["train"], length, recipe.data.windows, recipe.trainer.seed, brackets, "training text"
    )
    held_out = Windows(
        tokens["validation"], length, ends=brackets, name="validation split of the corpus"
    )
    torch.manual_seed(recipe.trainer.seed)
    config = ModelConfig.from_dict(_shape(recipe, tokenizer.get_vocab_size()))
    objective = _objective(recipe, config)
    if options.init is not None:
        _initialise(objective.model, options.init, tokenizer)
    encoding = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()
    record(options.out, recipe, {"text": corpus.sha256, "tokenizer": encoding})

    def write_model(module: Any, path: Path) -> None:
        write_network(module, path)
        tokenizer.save(str(path / "tokenizer.json"))

    log = Log(
        options.out / "log.jsonl",
        console,
        recipe.trainer.steps,
        visible=rank() == 0,
        tensorboard=options.out / "tensorboard" if options.tensorboard else None,
    )
    trainer = Trainer(
        objective,
        train.batch,
        recipe.trainer,
        recipe.optimizer,
        options.out,
        write_model,
        validator(held_out.first(recipe.data.validation)),
        tell=log.say,
        on_step=log.record,
    )
    weights = sum(parameter.numel() for parameter in objective.parameters())
    log.say(
        f"{weights:,} weights, {recipe.trainer.steps:,} steps of {recipe.trainer.batch} x {length} "
        f"tokens; every step is in {options.out / 'log.jsonl'}"
    )
    with log:
        reached = trainer.run()
    if rank() > 0:
        return
    if reached < recipe.trainer.steps:
        print(f"stopped at step {reached}; go on with: dsl train {shlex.join(arguments)}")
        return
    write_model(trainer.ema.module, options.out / "model")
    print(f"trained to step {reached}: {options.out / 'model'}")


def _objective(recipe: Recipe, config: ModelConfig) -> Any:
    from dsl.baselines.ar import ArModel, ArObjective, ArObjectiveConfig
    from dsl.baselines.mdlm import MdlmModel, MdlmObjective, MdlmObjectiveConfig
    from dsl.baselines.vp import VpModel, VpObjective, VpObjectiveConfig
    from dsl.models.model import DSLModel
    from dsl.training.objective import MixedSNRObjective

    if isinstance(recipe.objective, MdlmObjectiveConfig):
        return MdlmObjective(MdlmModel(config))
    if isinstance(recipe.objective, ArObjectiveConfig):
        return ArObjective(ArModel(config))
    if isinstance(recipe.objective, VpObjectiveConfig):
        return VpObjective(VpModel(config), recipe.objective)
    return MixedSNRObjective(DSLModel(config), recipe.objective)


def _shape(recipe: Recipe, vocab_size: int) -> dict[str, Any]:
    """Complete the model's fields: evidence is exact with d = v - 1, where that is affordable."""
    exact = vocab_size <= 257
    return {
        "vocab_size": vocab_size,
        "model_length": recipe.data.length,
        "codebook_dim": vocab_size - 1 if exact else 64,
        "codebook": "simplex" if exact and "codebook_dim" not in recipe.model else "random",
        **recipe.model,
    }


def _tokenizer(recipe: Recipe, corpus: Corpus, cache: Path) -> Tokenizer:
    from dsl.data import tokenizers

    if recipe.data.tokenizer != "characters":
        return tokenizers.by_name(recipe.data.tokenizer, cache)
    alphabet = corpus.alphabet or corpus.characters()
    if len(alphabet) > MOST_CHARACTERS:
        raise ValueError(
            f"corpus {recipe.data.corpus!r} has {len(alphabet)} different characters, more than "
            f"{MOST_CHARACTERS}; set data.tokenizer to a tokenizer.json"
        )
    return tokenizers.characters(alphabet)


def _initialise(model: nn.Module, source: str, tokenizer: Tokenizer) -> None:
    from dsl.data import tokenizers
    from dsl.loading import directory
    from dsl.models import folder

    path = directory(source)
    table = path / tokenizers.TOKENIZER
    if table.is_file():
        theirs, ours = tokenizers.read(table).get_vocab(), tokenizer.get_vocab()
        if theirs != ours:
            raise ValueError(
                f"--init {source} knows {len(theirs)} tokens, this corpus has {len(ours)}, and "
                f"they differ; --set data.tokenizer={table} reads the corpus as the weights do"
            )
    try:
        folder.load_tensors(path, model)
    except ValueError as error:
        raise ValueError(f"--init {source} does not fit the recipe's model: {error}") from error
    print(f"began with the weights of {source}", file=sys.stderr)
