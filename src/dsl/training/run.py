"""Train a model from a recipe.

    dsl.train("cyclic", "runs/cyclic")

The same call resumes an interrupted run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from dsl._util import files
from dsl._util.processes import Process, this_process
from dsl.checkpoints.convert import is_spelled, respell
from dsl.checkpoints.loading import directory, load, require_device, trained_tokens
from dsl.data import tokenizers
from dsl.data.bpe import tokenizer_of
from dsl.data.corpora import Corpus, prepare
from dsl.data.documents import Documents, blocks
from dsl.data.sources import Progress, default_cache
from dsl.data.windows import Windows, tokenise
from dsl.evaluation import repair
from dsl.evaluation.validation import validator
from dsl.models import folder
from dsl.models.dsl import DSLModel
from dsl.training import recipe as recipes
from dsl.training.precision import RECORD as PRECISION
from dsl.training.recipe import Recipe
from dsl.training.trainer import Trainer

RECIPE, DATA, MODEL, LOG = "recipe.yaml", "data.json", "model", "log.jsonl"
FREE = ("steps", "validate_every", "save_every", "keep", "log_every")
"""Fields of the trainer that may change when a run resumes."""
HELD_OUT = "validation split of the corpus"


@dataclass(frozen=True)
class Watch:
    """Callbacks of a run."""

    tell: Callable[[str], None] = lambda _: None
    """Called with messages for the user."""
    on_event: Callable[[dict[str, Any]], None] = lambda _: None
    """Called with a dictionary for every logged step and validation."""
    on_data: Progress = lambda *_: None
    """Called with the progress of data preparation: task, done, total."""


@dataclass(frozen=True)
class Trained:
    """The state of a run."""

    step: int
    finished: bool
    model: Path
    """Directory of the averaged model, written when the run is finished."""


def train(
    recipe: str | Path | Recipe,
    out: str | Path,
    *,
    changes: Sequence[str] = (),
    smoke: bool = False,
    init: str | Path | None = None,
    cache: Path | None = None,
    device: str | None = None,
    watch: Watch | None = None,
) -> Trained:
    """Train a model from a recipe, or resume an interrupted run.

    Args:
        recipe: A recipe, the name of a bundled one, or a YAML file.
        out: The run's directory: recipe, log, checkpoints, and finally the model.
        changes: Overrides such as "trainer.steps=100"; for names and files only.
        smoke: Shorten the run to a quick test; for names and files only.
        init: Initial weights: a checkpoint directory, a hub id, or a bundled model. A
            character-level DSL model is converted to the characters of the corpus.
        cache: Cache directory for corpora.
        device: "cpu", "cuda" or "cuda:N"; a GPU if there is one when not given.
        watch: Callbacks.
    """
    if not isinstance(recipe, Recipe):
        recipe = recipes.read(recipes.find(str(recipe)), changes, smoke=smoke)
    elif changes or smoke:
        raise ValueError("changes and smoke are for recipes given by name or file")
    process = this_process(on_cpu=_on_cpu(device))
    folder_out = Path(out)
    folder_out.mkdir(parents=True, exist_ok=True)
    with files.locked(folder_out, rank=process.rank):
        require_same(folder_out, recipe)
        if recipe.needs_init and init is None and not _begun(folder_out):
            raise ValueError(
                "this recipe fine-tunes a model: --init must name its initial weights "
                "(dsl convert mdlm makes them from an MDLM checkpoint)"
            )
        run = Run(recipe, folder_out, init, cache or default_cache(), process, watch or Watch())
        return run.go()


@dataclass(frozen=True)
class Run:
    """A training run with all its settings."""

    recipe: Recipe
    out: Path
    init: str | Path | None
    cache: Path
    process: Process
    watch: Watch

    def go(self) -> Trained:
        """Build data, model, objective and validator; train; write the model."""
        recipe, family = self.recipe, self.recipe.objective.family
        corpus, tokenizer, training, held_out = self._data()
        torch.manual_seed(recipe.trainer.seed)
        shape = family.shape(tokenizer.get_vocab_size(), recipe.data.length, recipe.model)
        network = family.build(shape)
        if self.init is not None:
            said = initialise(network, str(self.init), tokenizer, corpus, fresh=family.fresh)
            self.watch.tell(said)
        encoding = hashlib.sha256(tokenizer.to_str().encode()).hexdigest()
        require_same_data(self.out, recipe, data := {"text": corpus.sha256, "tokenizer": encoding})
        if self.process.rank == 0:  # the tokenizer too, so that a resumed run needs no cache
            files.write_text(self.out / DATA, json.dumps(data, indent=2))
            files.write_text(self.out / RECIPE, recipes.write(recipe))
            files.write_text(self.out / MODEL / tokenizers.TOKENIZER, tokenizer.to_str(pretty=True))

        def write_model(module: Any, path: Path) -> None:
            family.write(module, path)
            files.write_text(path / tokenizers.TOKENIZER, tokenizer.to_str(pretty=True))
            if kind := self._kind_of_texts():
                files.write_text(path / folder.TRAINING, json.dumps(kind))

        validation = held_out.first(recipe.data.validation)
        trainer = Trainer(
            family.objective(network, recipe.objective.options),
            training.batch,
            recipe.trainer,
            recipe.optimizer,
            self.out,
            write_model,
            validator(
                family,
                validation,
                padding=held_out.padding(validation),
                probes=self._probes(corpus, tokenizer, held_out),
            ),
            tell=self.watch.tell,
            on_step=self.watch.on_event,
            process=self.process,
        )
        weights = sum(parameter.numel() for parameter in network.parameters())
        self.watch.tell(
            f"{weights:,} weights, {recipe.trainer.steps:,} steps of {recipe.trainer.batch} x "
            f"{recipe.data.length} tokens; every step is in {self.out / LOG}"
        )
        reached = trainer.run()
        finished = reached >= recipe.trainer.steps
        if finished and self.process.rank == 0:
            write_model(trainer.averages.module, self.out / MODEL)
            files.write_text(self.out / MODEL / folder.TRAINING, json.dumps(self._training()))
        return Trained(reached, finished, self.out / MODEL)

    def _kind_of_texts(self) -> dict[str, bool]:
        """Return whether the model's blocks are documents, and whether documents share a block."""
        data = self.recipe.data
        return {"documents": True, "share": data.share} if data.windows == "documents" else {}

    def _probes(
        self, corpus: Corpus, tokenizer: Tokenizer, held_out: Windows | Documents
    ) -> repair.Probes | None:
        """Corrupt held-out text if the recipe asks for it."""
        if self.recipe.data.probes is None:
            return None
        words = repair.frequent_words(corpus)
        return repair.damage(held_out.spread(repair.BLOCKS), tokenizer, words)

    def _training(self) -> dict[str, Any]:
        """Return the number of training tokens, including those of the initial weights."""
        recipe = self.recipe
        tokens = recipe.trainer.steps * recipe.trainer.batch * recipe.data.length
        before = trained_tokens(directory(self.init)) if self.init is not None else 0
        return {"tokens": None if before is None else tokens + before, **self._kind_of_texts()}

    def _data(self) -> tuple[Corpus, Tokenizer, Windows | Documents, Windows | Documents]:
        """Fetch and encode the corpus in rank 0; the other ranks read its files."""
        data, on_data = self.recipe.data, self.watch.on_data
        with self.process.first():
            corpus = prepare(data.corpus, self.cache, on_progress=on_data)
            kept = self.out / MODEL / tokenizers.TOKENIZER
            tokenizer = tokenizer_of(
                corpus, data.tokenizer, self.cache, kept=kept, on_progress=on_data
            )
            tokens = {
                split: tokenise(corpus, split, tokenizer, on_progress=on_data)
                for split in ("train", "validation")
            }
        ends, seed = tokenizers.ends(tokenizer), self.recipe.trainer.seed
        training, held_out = (
            blocks(
                corpus, tokens[split], data.length, data.windows,
                ends=ends, share=data.share, seed=seed, name=name,
            )
            for split, name in (("train", "training text"), ("validation", HELD_OUT))
        )  # fmt: skip
        if isinstance(training, Documents):
            self.watch.tell(training.summary(corpus.empty))
        return corpus, tokenizer, training, held_out


def require_same(out: Path, recipe: Recipe) -> None:
    """Raise an error if a directory holds something else or a run of another recipe.

    Settings that do not change a step may change, and so may a precision that was chosen
    automatically.
    """
    path = out / RECIPE
    if path.exists():
        before = recipes.read(path)
        free: dict[str, Any] = {name: getattr(recipe.trainer, name) for name in FREE}
        if before.trainer.precision == "auto" or (out / PRECISION).exists():
            free["precision"] = recipe.trainer.precision
        same = replace(before, trainer=replace(before.trainer, **free))
        if changed := recipes.difference(same, recipe):
            raise ValueError(
                f"{out} holds a run of another recipe ({'; '.join(changed)}); choose another --out"
            )
    elif others := sorted(file.name for file in out.iterdir() if file.name != files.LOCK):
        raise ValueError(f"{out} is not a run: it holds {others[0]!r}; choose another --out")


def require_same_data(out: Path, recipe: Recipe, data: dict[str, str]) -> None:
    """Raise an error if the text or the tokenizer of a run changed since it began."""
    if (out / DATA).exists():
        before = files.parse_json((out / DATA).read_bytes(), str(out / DATA))
        if not isinstance(before, dict):
            raise ValueError(f"{out / DATA} must be a JSON object of checksums")
        changed = [name for name, digest in data.items() if before.get(name) != digest]
        if changed:
            raise ValueError(
                f"the {' and the '.join(changed)} of {recipe.data.corpus} changed since the run in "
                f"{out} began; choose another --out"
            )


def initialise(
    network: nn.Module,
    source: str,
    tokenizer: Tokenizer,
    corpus: Corpus,
    *,
    fresh: Sequence[str] = (),
) -> str:
    """Load the weights of a checkpoint, and return a message about them.

    A DSL model of other characters is converted to those of the tokenizer.
    """
    path, said = directory(source), f"initialised with the weights of {source}"
    table = path / tokenizers.TOKENIZER
    theirs = tokenizers.read(table) if table.is_file() else tokenizer
    try:
        if theirs.get_vocab() == tokenizer.get_vocab():
            folder.load_tensors(path, network, fresh=fresh)
            return said
        before, after = theirs.get_vocab_size(), tokenizer.get_vocab_size()
        if not (isinstance(network, DSLModel) and is_spelled(theirs) and is_spelled(tokenizer)):
            raise ValueError(
                f"it has {before} tokens, this corpus has {after}, and they differ; use the "
                f"tokenizer of the weights: --set data.tokenizer={table}"
            )
        blocks, length = network.config.n_blocks, network.config.model_length
        made = respell(load(source), tokenizer, corpus, blocks=blocks, length=length)
        folder.fill(network, made.state_dict())
    except ValueError as error:
        raise ValueError(f"--init {source} does not fit the recipe's model: {error}") from error
    return f"{said}, converted from its {before} characters to the {after} of {corpus.name}"


def _begun(out: Path) -> bool:
    return any((out / "checkpoints").glob("step-*"))


def _on_cpu(device: str | None) -> bool:
    """Return whether a run uses the CPU; `cuda:N` selects a GPU for this process."""
    if device is None:
        return not torch.cuda.is_available()
    require_device(device)
    chosen = torch.device(device)
    if chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu, cuda or cuda:N for training, got {device!r}")
    if chosen.type == "cuda" and chosen.index is not None:
        torch.cuda.set_device(chosen)
    return chosen.type == "cpu"
