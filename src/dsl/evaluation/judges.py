"""Pretrained models that judge text: causal language models and feature models.

A judge is a directory that transformers can load, such as GPT-2 Large's (the paper's protocol), a
packaged model in the cache, which needs no hub, or a causal model of this package.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from tokenizers import Tokenizer
from torch import Tensor

from dsl._util.config import one_line
from dsl._util.extras import require
from dsl._util.files import locked, whole
from dsl.checkpoints.loading import Model, directory, load, require_teacher, teachers
from dsl.data.sources import Progress, package
from dsl.evaluation.settings import PACKAGED
from dsl.likelihoods.estimate import Mean
from dsl.models import folder
from dsl.models.ar import ArModel

TEACHER = "teacher:"
"""Prefix of the names of published causal models."""


def fetch(name: str, cache: Path, *, on_progress: Progress | None = None) -> Path:
    """Return the directory of a judge; a packaged judge is downloaded into the cache."""
    require_judge(name)
    if name.startswith(TEACHER):
        return directory(name)
    if name not in PACKAGED:
        return Path(name).expanduser()
    requirement, prefix, _, sha256 = PACKAGED[name]
    if (found := kept(name, cache)) is not None:
        return found
    target = cache / "judges" / name
    if on_progress:
        on_progress(f"fetching {requirement}", 0, 0)
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent, wait=True):
        if not target.is_dir():  # another process may have downloaded it
            with whole(target) as part:
                _unpack(package(requirement, part.parent, sha256=sha256), prefix, part)
    return target


def require_judge(name: str) -> None:
    """Raise an error for an unknown judge."""
    if name.startswith(TEACHER):
        require_teacher(name)
    elif name not in PACKAGED and not Path(name).expanduser().is_dir():
        raise FileNotFoundError(
            f"no model directory at {name!r}; expected a path or one of "
            f"{', '.join([*teachers(), *PACKAGED])}"
        )


def kept(name: str, cache: Path) -> Path | None:
    """Return the directory of a packaged judge, if cached; earlier versions used `oracles`."""
    places = (cache / "judges" / name, cache / "oracles" / name)
    return next((place for place in places if place.is_dir()), None)


def _unpack(wheel: Path, prefix: str, folder: Path) -> None:
    """Extract all files of a package that are not code; all must lie inside the folder."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if member.startswith(prefix) and not member.endswith((".py", "/")):
                file = folder / member.removeprefix(prefix)
                if not file.resolve().is_relative_to(folder.resolve()):
                    raise OSError(f"{wheel.name} has a file outside of itself: {member}")
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(archive.read(member))


def digest(folder: Path) -> str:
    """Return a hash of the sizes and first megabytes of a judge's files."""
    hasher = hashlib.sha256()
    # a lock exists only while another process unpacks the weights
    for path in sorted(p for p in folder.glob("*") if p.is_file() and p.suffix != ".lock"):
        with path.open("rb") as file:
            hasher.update(f"{path.relative_to(folder)} {path.stat().st_size}".encode())
            hasher.update(file.read(1 << 20))
    return hasher.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Judge:
    """A pretrained model with its tokenizer."""

    folder: Path
    network: Any
    tokenizer: Any
    causal: bool
    """Whether it is a language model, or an encoder whose states are averaged."""

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Judge:
        """Load a directory; a .gguf file in it is unpacked into a directory once."""
        transformers: Any = require("transformers", extra="eval")
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        try:
            source = _unpacked(transformers, folder)
            causal = _is_causal(transformers, source)
            kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
            network = kind.from_pretrained(source, dtype=torch.float32, trust_remote_code=False)
            tokenizer = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        except Exception as error:  # any type, if a file is damaged
            reason = one_line(error) or type(error).__name__
            raise ValueError(
                f"{folder} is not a model that transformers can load: {reason}"
            ) from error
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        tokenizer.padding_side = "right"
        return cls(folder, network.to(device).eval(), tokenizer, causal)

    @torch.no_grad()
    def features(
        self, texts: Sequence[str], *, most: int = 1024, batch_size: int = 16
    ) -> Float[np.ndarray, "n h"]:
        """Return one vector for each text: the last token's state, or the mean of all states."""
        if not texts:
            raise ValueError("features need at least one text, got none")
        rows = []
        for begin in range(0, len(texts), batch_size):
            batch = self._encode(texts[begin : begin + batch_size], most)
            out = self.network(**batch, output_hidden_states=True)
            mask = batch["attention_mask"]
            if self.causal:
                states = out.hidden_states[-1]
                row = states[torch.arange(len(states)), mask.sum(dim=1) - 1]
            else:
                states, weight = out.last_hidden_state, mask.unsqueeze(-1)
                row = (states * weight).sum(dim=1) / weight.sum(dim=1)
            rows.append(row.float().cpu().numpy())
        return np.concatenate(rows)

    @torch.no_grad()
    def score(self, texts: Sequence[str], *, most: int = 1024, batch_size: int = 8) -> Scored:
        """Return -log P of each text, with the number of scored tokens and characters.

        As in MDLM's evaluation, the first token is never a target, and of the end-of-text tokens
        only the first counts; tokens after it do count.
        """
        if not self.causal:
            raise ValueError(f"{self.folder.name} is not a causal language model")
        totals, counts, characters = [], [], []
        for begin in range(0, len(texts), batch_size):
            batch = self._encode(texts[begin : begin + batch_size], most)
            ids, mask = batch["input_ids"], batch["attention_mask"]
            logits = self.network(**batch).logits[:, :-1].float()
            targets = ids[:, 1:]
            losses = torch.nn.functional.cross_entropy(
                logits.transpose(1, 2), targets, reduction="none"
            ).double()
            end = ids == self.tokenizer.eos_token_id
            first = end & (end.cumsum(dim=1) == 1)
            counted = ((~end | first) & mask.bool())[:, 1:]
            totals.append((losses * counted).sum(dim=1).cpu())
            counts.append(counted.sum(dim=1).double().cpu())
            kept = [row[at].tolist() for row, at in zip(targets, counted, strict=True)]
            texts_kept = self.tokenizer.batch_decode(
                kept, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
            characters += [len(text) for text in texts_kept]
        letters = torch.tensor(characters, dtype=torch.float64)
        return Scored(torch.cat(totals), torch.cat(counts), letters)

    def _encode(self, texts: Sequence[str], most: int) -> dict[str, Tensor]:
        if any(not text for text in texts):
            raise ValueError("texts must not be empty, got an empty one")
        room = getattr(self.network.config, "max_position_embeddings", most)
        batch = self.tokenizer(
            list(texts), return_tensors="pt", padding=True, truncation=True,
            max_length=min(most, room),
        )  # fmt: skip
        device = next(self.network.parameters()).device
        return {k: batch[k].to(device) for k in ("input_ids", "attention_mask")}


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of texts by a language model; standard errors are over texts."""

    nats: Float[Tensor, "n"]
    tokens: Float[Tensor, "n"]
    characters: Float[Tensor, "n"]

    def perplexity(self) -> Mean:
        """Return exp(Σ nats / Σ tokens)."""
        found = self.nats_per_token()
        return Mean(math.exp(found.mean), math.exp(found.mean) * found.stderr)

    def nats_per_token(self) -> Mean:
        """Return Σ nats / Σ tokens."""
        return Mean.ratio(self.nats, self.tokens)

    def bits_per_character(self) -> Mean:
        """Return Σ bits / Σ characters, which does not depend on the tokenizer."""
        return Mean.ratio(self.nats / math.log(2), self.characters)


def _unpacked(transformers: Any, folder: Path) -> Path:
    """Return the directory to load; quantized weights are unpacked once, because that is slow."""
    packed = sorted(folder.glob("*.gguf"))
    if not packed:
        return folder
    ready = folder / "unpacked"
    if not ready.is_dir():
        with locked(ready, wait=True):
            if not ready.is_dir():
                _rewrite(transformers, folder, packed[0].name, ready)
    return ready


def _rewrite(transformers: Any, folder: Path, name: str, ready: Path) -> None:
    require("gguf", extra="eval")
    with whole(ready) as part:
        network = transformers.AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=name, dtype=torch.float32, trust_remote_code=False
        )
        # the weights are dequantized; a fresh model has no quantization_config
        fields = network.config.to_dict()
        fields.pop("quantization_config", None)
        plain = transformers.AutoModelForCausalLM.from_config(type(network.config)(**fields))
        plain.load_state_dict(network.state_dict())
        plain.save_pretrained(part)
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, gguf_file=name, trust_remote_code=False
        )
        tokenizer.save_pretrained(part)


def _is_causal(transformers: Any, folder: Path) -> bool:
    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    mapping = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    names = config.architectures or []
    if names:
        return any(name.endswith(("CausalLM", "LMHeadModel")) for name in names)
    return config.model_type in mapping


def is_ours(path: Path) -> bool:
    """Whether a directory is a model of this package rather than of transformers."""
    return (path / folder.CONFIG).is_file() and "kind" in folder.read_config(path)


@dataclass(frozen=True, eq=False)
class Teacher:
    """A causal model of this package as a judge. On its own samples, its nats are the entropy."""

    model: Model

    @classmethod
    def load(cls, path: Path, *, device: str = "cpu") -> Teacher:
        """Load a directory."""
        return cls.of(load(path, device=device))

    @classmethod
    def of(cls, model: Model) -> Teacher:
        """Wrap a model, which must be causal."""
        if not isinstance(model.denoiser, ArModel) or model.tokenizer is None:
            raise ValueError(
                f"a judge must be a causal model with a tokenizer, got {model.name} of family "
                f"{model.family.name}"
            )
        return cls(model)

    @torch.no_grad()
    def score(
        self,
        texts: Sequence[str],
        rows: Sequence[Sequence[int]],
        tokenizer: Tokenizer,
        *,
        batch_size: int = 32,
    ) -> Scored:
        """Return -log P of each text, with the number of scored tokens and characters.

        If the tokenizers are equal, `rows` are scored as they are. Otherwise texts are encoded,
        with an end token if there is room. Nothing after the first end of a document counts.
        """
        model = self.model
        assert model.tokenizer is not None
        if model.tokenizer.to_str() != tokenizer.to_str():
            rows = [[*model.encode(text), *model.ends[1]][: model.length] for text in texts]
        nats, counts = [], []
        for begin in range(0, len(rows), batch_size):
            part = [self._own(row)[: model.length] for row in rows[begin : begin + batch_size]]
            longest = max(len(row) for row in part)
            fill = model.end or 0
            tokens = torch.tensor([[*row, *[fill] * (longest - len(row))] for row in part])
            counted = torch.arange(longest) < torch.tensor([len(row) for row in part]).unsqueeze(1)
            log_p = model.denoiser.teacher_forced(tokens.to(model.device)).double().log_softmax(-1)
            own = log_p.gather(-1, tokens.to(model.device).unsqueeze(-1)).squeeze(-1).cpu()
            nats.append(-own.where(counted, 0.0).sum(dim=1))
            counts.append(counted.sum(dim=1).double())
        characters = torch.tensor([len(text) for text in texts], dtype=torch.float64)
        return Scored(torch.cat(nats), torch.cat(counts), characters)

    def _own(self, row: Sequence[int]) -> list[int]:
        """Return the tokens of a document up to its end, and all tokens of other texts."""
        ids, end = list(row), self.model.end
        return ids[: ids.index(end) + 1] if self.model.documents and end in ids else ids
