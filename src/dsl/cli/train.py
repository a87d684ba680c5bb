"""`dsl train`: run a recipe, or go on with a run that was stopped."""

from __future__ import annotations

import fcntl
import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

MOST_CHARACTERS = 1024
"""The largest alphabet that is taken for one."""

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import nn

    from dsl.data.corpora import Corpus
    from dsl.models.config import ModelConfig
    from dsl.recipes import Recipe
    from dsl.training.trainer import Validator
    from dsl.types import Tokens


@dataclass(frozen=True)
class TrainOptions:
    """Train a model by a recipe. The same command goes on where a stopped run was.

    Any field of the recipe can be changed: --set trainer.steps=100 --set optimizer.lr=1e-3. Under
    torchrun or accelerate launch the batch is shared by the processes.
    """

    recipe: tyro.conf.Positional[Path]
    """A YAML file."""
    out: Path
    """The run's directory: recipe, log, checkpoints, and at the end the model."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A change of the recipe, key=value; may be given several times."""
    smoke: bool = False
    """Make the run as short as a test."""
    init: Path | None = None
    """Begin with the weights of this checkpoint instead of random ones."""
    cache: Path | None = None
    """Where corpora are kept."""


def main(arguments: Sequence[str]) -> None:
    """Read the recipe, build the run, train."""
    options = tyro.cli(TrainOptions, args=list(arguments), prog="dsl train")
    from dsl import recipes

    recipe = recipes.read(options.recipe, options.set, smoke=options.smoke)
    options.out.mkdir(parents=True, exist_ok=True)
    with locked(options.out):
        agree(options.out / "recipe.yaml", recipe)
        run(recipe, options, arguments)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the run's directory, refusing a second process; ranks of one run share the lock."""
    from dsl.cli.processes import rank

    if rank() > 0:
        yield
        return
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another process is training in {folder}") from None
        yield


def agree(path: Path, recipe: Recipe) -> None:
    """Write the resolved recipe, or refuse to go on with another one; more steps are fine."""
    from dsl import recipes

    if path.exists():
        before = recipes.read(path)
        same = replace(before, trainer=replace(before.trainer, steps=recipe.trainer.steps))
        if same != recipe:
            raise ValueError(
                f"{path.parent} holds a run of another recipe; choose another --out, "
                f"or compare with {path}"
            )
    path.write_text(recipes.write(recipe), encoding="utf-8")


def run(recipe: Recipe, options: TrainOptions, arguments: Sequence[str]) -> None:
    """Build data, model, objective and validator; train; write the model."""
    import torch
    from rich.console import Console

    from dsl.cli.data import default_cache
    from dsl.cli.processes import rank
    from dsl.data.corpora import prepare
    from dsl.data.windows import Windows, tokenise
    from dsl.loading import write_network
    from dsl.models.config import ModelConfig
    from dsl.training.trainer import Trainer

    console = Console(stderr=True)
    corpus = prepare(recipe.data.corpus, options.cache or default_cache())
    tokenizer = _tokenizer(recipe, corpus)
    train = Windows(
        tokenise(corpus, "train", tokenizer),
        recipe.data.length,
        recipe.data.windows,
        recipe.trainer.seed,
    )
    held_out = Windows(tokenise(corpus, "validation", tokenizer), recipe.data.length)
    torch.manual_seed(recipe.trainer.seed)
    config = ModelConfig.from_dict(_shape(recipe, tokenizer.get_vocab_size()))
    objective = _objective(recipe, config)
    if options.init is not None:
        _initialise(objective.model, options.init)

    def write_model(module: Any, path: Path) -> None:
        write_network(module, path)
        tokenizer.save(str(path / "tokenizer.json"))

    log = Log(options.out / "log.jsonl", console, recipe.trainer.steps, visible=rank() == 0)
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
    with log:
        reached = trainer.run()
    if rank() > 0:
        return
    if reached < recipe.trainer.steps:
        print(f"stopped at step {reached}; go on with: dsl train {' '.join(arguments)}")
        return
    write_model(trainer.ema.module, options.out / "model")
    print(f"trained to step {reached}: {options.out / 'model'}")


def validator(tokens: Tokens) -> Validator:
    """Measure ROAR and path-integral NLL on a fixed set with fixed noise, in bits per token."""
    from dsl.likelihoods.chain_rule import Autoregressive, ChainRule
    from dsl.likelihoods.estimate import Likelihood
    from dsl.likelihoods.path_integral import PathIntegral
    from dsl.likelihoods.roar import Roar
    from dsl.scoring import continuous
    from dsl.streams import Streams

    def validate(model: Any) -> dict[str, float]:
        was_training = model.training
        model.eval()
        bits = {}
        estimators: dict[str, Likelihood] = {
            "chain rule": ChainRule(),
            "roar": Roar(2, 4),
            "shared": PathIntegral("shared", 20.0, 2, 8),
        }
        if isinstance(model, Autoregressive):
            estimators = {"chain rule": estimators["chain rule"]}
        else:
            del estimators["chain rule"]
            if not continuous(model):
                del estimators["shared"]
        device = model.codebook.device
        for name, estimator in estimators.items():
            streams = Streams.derive(0, range(len(tokens)), device=device)
            estimate = estimator(model, tokens.to(device), generator=streams)
            values = estimate.nats / tokens.shape[1] / math.log(2)
            bits[name] = float(values.mean())
            bits[f"{name}_stderr"] = float(values.std()) / len(values) ** 0.5
        model.train(was_training)
        return {"loss": next(iter(bits.values())), **bits}

    return validate


class Log:
    """The run's record: a JSON line for every event, and a progress line for people."""

    def __init__(self, path: Path, console: Any, steps: int, *, visible: bool) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.path, self.visible, self.console = path, visible, console
        self.bar = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not visible or not console.is_terminal,
        )
        self.task = self.bar.add_task("", total=steps)
        self.validation = ""

    def __enter__(self) -> Log:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def say(self, text: str) -> None:
        """Tell the user something that happened."""
        if self.visible:
            self.console.print(text)

    def record(self, event: dict[str, Any]) -> None:
        """Write an event down and show it."""
        if not self.visible:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")
        if "validation" in event:
            bits = event["validation"]
            self.validation = f"validation {bits['loss']:.3f} bits"
            shown = [f"{n} {b:.4f}" for n, b in bits.items() if n != "loss" and "stderr" not in n]
            self.say(f"step {event['step']}: validation {', '.join(shown)} bits per token")
        else:
            rate = f"{event['tokens_per_second']:,.0f} tokens/s"
            text = f"loss {event['loss']:.4f}  {rate}  {self.validation}"
            self.bar.update(self.task, completed=event["step"], description=text)


def _objective(recipe: Recipe, config: ModelConfig) -> Any:
    from dsl.baselines.ar import ArModel, ArObjective, ArObjectiveConfig
    from dsl.baselines.mdlm import MdlmModel, MdlmObjective, MdlmObjectiveConfig
    from dsl.models.model import DSLModel
    from dsl.training.objective import MixedSNRObjective

    if isinstance(recipe.objective, MdlmObjectiveConfig):
        return MdlmObjective(MdlmModel(config))
    if isinstance(recipe.objective, ArObjectiveConfig):
        return ArObjective(ArModel(config))
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


def _tokenizer(recipe: Recipe, corpus: Corpus) -> Tokenizer:
    from dsl.data import tokenizers

    if recipe.data.tokenizer == "bytes":
        return tokenizers.byte_level()
    if recipe.data.tokenizer != "characters":
        return tokenizers.read(Path(recipe.data.tokenizer))
    alphabet = corpus.alphabet
    if alphabet is None:
        alphabet = "".join(sorted(set(corpus.path.read_text(encoding="utf-8"))))
    if len(alphabet) > MOST_CHARACTERS:
        raise ValueError(
            f"corpus {recipe.data.corpus!r} has {len(alphabet)} different characters, more than "
            f"{MOST_CHARACTERS}; set data.tokenizer to a tokenizer.json"
        )
    return tokenizers.characters(alphabet)


def _initialise(model: nn.Module, source: Path) -> None:
    from dsl.models import folder

    folder.load_tensors(folder.locate(source), model)
    print(f"began with the weights of {source}", file=sys.stderr)
