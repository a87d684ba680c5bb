"""Load models: bundled ones, checkpoint directories, hub ids, teachers and exact oracles."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from dsl._util import files
from dsl._util.defaults import DEFAULT_MODEL
from dsl._util.registry import Registry
from dsl._util.validate import whole_number
from dsl.core import oracle
from dsl.data import tokenizers
from dsl.data import tokenizers as pieces
from dsl.data.document_ends import document
from dsl.data.sources import Progress, default_cache
from dsl.families import registry as table
from dsl.families.base import Family
from dsl.families.dsl import DSL
from dsl.models import folder

BUNDLED = Path(__file__).parents[1] / "weights"
"""Directory of the bundled models."""

LONGEST = 1_000_000
"""Maximum sequence length of an oracle."""

Fetch = Callable[[Path, Progress], Any]
"""Downloads something into the cache."""


@dataclass(frozen=True)
class Teacher:
    """A published model, loaded as `teacher:NAME`."""

    folder: Fetch
    """Returns the checkpoint directory in the cache."""
    llama: Fetch
    """Returns the original weights and pieces, for `dsl convert llama NAME`."""


TEACHERS: Registry[Teacher] = Registry("dsl.teachers", "teacher")

ORACLES = "oracle:cyclic-K, oracle:two-bit, oracle:markov or oracle:markov-V"


@dataclass(frozen=True, eq=False)
class Model:
    """A network with its family, its tokenizer and the lengths it can take."""

    name: str
    denoiser: Any
    """The network, with the protocol of its family; usually a denoiser."""
    tokenizer: Tokenizer | None
    length: int
    """The exact length of an oracle, or the maximum of a network."""
    family: Family = DSL
    """The kind of network; an oracle is used like a DSL network."""
    exact_length: bool = False
    """Whether `length` is the only one."""
    weights: Path | None = None
    """The directory the weights were read from."""
    documents: bool = False
    """Whether training blocks were documents with an end token and padding."""
    share: bool = False
    """Whether several documents shared a block."""

    def __repr__(self) -> str:
        """Describe the model in a few lines."""
        tokens = "no tokenizer" if self.tokenizer is None else f"{self.vocab_size:,} tokens"
        lengths = f"{'exactly' if self.exact_length else 'at most'} {self.length:,} in a sequence"
        inner = repr(self.denoiser) if self.weights is not None else "an exact denoiser"
        return f"Model {self.name!r} of family {self.family.name}: {tokens}, {lengths}\n{inner}"

    @property
    def vocab_size(self) -> int:
        """The number of real tokens."""
        return int(self.denoiser.vocab_size)

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        device: torch.device = self.denoiser.device
        return device

    @property
    def protocol(self) -> type:
        """The protocol that the network implements."""
        return self.family.protocol_of(self.denoiser)

    def can_answer(self, asked: type) -> bool:
        """Whether the network implements a protocol: `model.can_answer(sampler.asks)`."""
        return asked in self.protocol.__mro__

    def require_length(self, length: int) -> None:
        """Raise an error for a length that the model cannot take."""
        whole_number("length", length)
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        if self.exact_length and length != self.length:
            raise ValueError(f"{self.name} needs length {self.length}, got {length}")
        if length > self.length:
            raise ValueError(f"{self.name} has at most {self.length} tokens, got length {length}")

    @cached_property
    def digest(self) -> str | None:
        """The checksum of the weights; None for an oracle."""
        return None if self.weights is None else folder.checksum(self.weights)

    @property
    def trained_on(self) -> int | None:
        """The number of training tokens; None if unknown."""
        return None if self.weights is None else trained_tokens(self.weights)

    @property
    def specials(self) -> frozenset[int]:
        """Special tokens, such as the beginning of a sequence."""
        if self.tokenizer is None:
            return frozenset()
        added = self.tokenizer.get_added_tokens_decoder()
        return frozenset(token for token, about in added.items() if about.special)

    @property
    def ends(self) -> tuple[list[int], list[int]]:
        """The special tokens at the beginning and end of a block."""
        return ([], []) if self.tokenizer is None else tokenizers.ends(self.tokenizer)

    @property
    def end(self) -> int | None:
        """The special token that ends a text, if there is one."""
        after = self.ends[1]
        return after[-1] if after else None

    def document(self, ids: Sequence[int], *, known: int = 0) -> list[int]:
        """Return the tokens before the end of the document; all for models without documents.

        An end among the first `known` tokens is ignored.
        """
        return document(ids, self.ends, known=known) if self.documents else list(ids)

    def can_say(self, text: str) -> bool:
        """Whether the tokenizer can encode this text."""
        try:
            self.encode(text)
        except ValueError:
            return False
        return True

    @property
    def pieces(self) -> list[str]:
        """The text of every token inside a text; empty for special tokens."""
        if self.tokenizer is None:
            raise ValueError(f"{self.name} has no tokenizer")
        tokens = [token for token in range(self.vocab_size) if token not in self.specials]
        before, found = self.decode(tokens[:1]), [""] * self.vocab_size
        for token in tokens:  # after another token, because a first token may lose its space
            found[token] = self.decode([tokens[0], token])[len(before) :]
        return found

    @property
    def spaced(self) -> bool:
        """Whether tokens of words include the space before the word."""
        return self.tokenizer is not None and pieces.spaced(self.tokenizer)

    def encode(self, text: str, *, inside: bool = False) -> list[int]:
        """Turn text into token ids.

        Args:
            text: The text.
            inside: Whether it continues another text; some tokenizers add a space to a beginning.
        """
        if self.tokenizer is None:
            raise ValueError(f"{self.name} cannot encode text: it has no {tokenizers.TOKENIZER}")
        reader = pieces.within(self.tokenizer) if inside else self.tokenizer
        return tokenizers.encode(reader, text)

    def decode(self, ids: list[int]) -> str:
        """Turn token ids into text, or into numbers without a tokenizer."""
        if self.tokenizer is None:
            return " ".join(map(str, ids))
        return tokenizers.decode(self.tokenizer, ids)


def load(
    name: str | Path = DEFAULT_MODEL,
    *,
    length: int | None = None,
    device: str | torch.device = "cpu",
) -> Model:
    """Load a model by name; by default a bundled one.

    Args:
        name: A bundled model, a checkpoint directory, a hub id, or an oracle.
        length: The sequence length, for an oracle of any length.
        device: The device of the network, such as "cuda:0".
    """
    if not isinstance(name, str | Path):
        raise ValueError(f"name must be a model's name or a path, got {name!r}")
    text = str(name)
    if length is not None and whole_number("length", length) < 1:
        raise ValueError(f"length must be at least 1, got {length}")
    require_device(device, oracle=text.startswith("oracle:"))
    if text.startswith("oracle:"):
        return _oracle(text, length)
    path = directory(name)
    family, network = table.read(path)
    network = network.to(device).requires_grad_(False)
    shape: Any = network.config
    file = path / tokenizers.TOKENIZER
    tokenizer = tokenizers.read(file) if file.exists() else None
    if tokenizer is not None and tokenizer.get_vocab_size() != shape.vocab_size:
        raise ValueError(
            f"{file} has {tokenizer.get_vocab_size()} tokens, "
            f"the model beside it {shape.vocab_size}"
        )
    training = _training(path)
    model = Model(
        text,
        network,
        tokenizer,
        shape.model_length,
        family,
        weights=path,
        documents=training.get("documents") is True,
        share=training.get("share") is True,
    )
    if model.documents and model.end is None:
        raise ValueError(f"{path} was trained on documents, but its tokenizer has no end token")
    return model


def trained_tokens(path: Path) -> int | None:
    """Return the number of tokens that a checkpoint was trained on; None if unknown."""
    tokens = _training(path).get("tokens")
    return tokens if isinstance(tokens, int) else None


def _training(path: Path) -> dict[str, Any]:
    """Read training.json of a checkpoint; empty if there is none."""
    file = path / folder.TRAINING
    found = files.parse_json(file.read_bytes(), str(file)) if file.is_file() else None
    return found if isinstance(found, dict) else {}


def loaded(model: Any, *, length: int | None = None) -> Model:
    """Return a model, given as itself or by name."""
    if not isinstance(model, Model | str | Path):
        raise ValueError(f"model must be a model, its name or its path, got {model!r}")
    return model if isinstance(model, Model) else load(model, length=length)


def is_name(text: str) -> bool:
    """Whether a text names an oracle, a teacher or a bundled model."""
    return text.startswith(("oracle:", "teacher:")) or text in bundled()


def directory(name: str | Path) -> Path:
    """Return the directory of a checkpoint, downloading a hub id or teacher if needed."""
    if str(name) in bundled():
        return BUNDLED / name
    if str(name).startswith("teacher:"):
        return _teacher(str(name))
    if "/" not in str(name) and not Path(name).expanduser().exists():
        raise FileNotFoundError(
            f"no model {str(name)!r}: expected a bundled one ({', '.join(bundled())}), a "
            f"checkpoint directory, a hub id (owner/name), {', '.join(teachers())}, or {ORACLES}"
        )
    return folder.locate(name)


def teachers() -> list[str]:
    """List the names of all teachers."""
    return [f"teacher:{name}" for name in TEACHERS]


def require_teacher(name: str) -> None:
    """Raise an error for an unknown teacher."""
    if name not in teachers():
        raise ValueError(f"unknown teacher {name!r}; expected {', '.join(teachers())}")


def _teacher(name: str) -> Path:
    """Return the directory of a teacher, downloading it if needed."""
    require_teacher(name)
    folder: Path = TEACHERS[name.removeprefix("teacher:")].folder(default_cache(), lambda *_: None)
    return folder


def bundled() -> list[str]:
    """List the bundled models."""
    return sorted(path.parent.name for path in BUNDLED.glob(f"*/{folder.CONFIG}"))


def require_device(device: str | torch.device, *, oracle: bool = False) -> None:
    """Raise an error for a device that does not exist."""
    if not isinstance(device, str | torch.device):
        raise ValueError(f"device must be a name such as 'cuda:0', got {device!r}")
    try:
        torch.zeros(1, device=device).tolist()  # fails on "meta"
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device {str(device)!r} cannot be used: {str(error).splitlines()[0][:300]}"
        ) from error
    if oracle and torch.device(device).type != "cpu":
        raise ValueError(f"oracles run on the cpu, got device {str(device)!r}")


def _oracle(name: str, length: int | None) -> Model:
    kind = name.removeprefix("oracle:")
    if match := re.fullmatch(r"cyclic-([0-9]{1,9})", kind):
        size = int(match[1])
        if not 2 <= size <= 26:
            raise ValueError(f"oracle:cyclic-K needs K in 2 … 26, got {size}")
        letters = "".join(chr(ord("A") + i) for i in range(size))
        truth: oracle.Oracle = oracle.cyclic(size)
    elif kind == "two-bit":
        letters, truth = "01", oracle.two_bit()
    elif match := re.fullmatch(r"markov(?:-([0-9]{1,9}))?", kind):
        size = int(match[1] or 6)
        if not 2 <= size <= 26:
            raise ValueError(f"oracle:markov-V needs V in 2 … 26, got {size}")
        letters = "".join(chr(ord("a") + i) for i in range(size))
        if length is not None and length > LONGEST:
            raise ValueError(f"oracle:markov has at most {LONGEST:,} tokens, got length {length}")
        truth = oracle.markov(size, 8 if length is None else length)
    else:
        raise ValueError(f"unknown oracle {name!r}; expected {ORACLES}")
    tokenizer = tokenizers.characters(letters)
    return Model(name, truth, tokenizer, truth.length, exact_length=True)
