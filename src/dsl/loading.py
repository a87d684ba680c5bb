"""Models by name: a bundled one, a checkpoint directory, a hub id, or an exact oracle."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from dsl import oracle
from dsl.baselines.ar import ArModel
from dsl.baselines.mdlm import MdlmModel
from dsl.baselines.vp import VpModel
from dsl.data import tokenizers
from dsl.denoiser import Denoiser
from dsl.models import folder
from dsl.models.config import ModelConfig
from dsl.models.model import DSLModel

BUNDLED = Path(__file__).parent / "weights"
"""Models that come with the package, each in a directory of its name."""

DEFAULT_MODEL = "text8-tiny"
"""Used where no model is named."""

ORACLES = "oracle:cyclic-K, oracle:two-bit, oracle:markov or oracle:markov-V"


@dataclass(frozen=True, eq=False)
class Model:
    """A denoiser with its tokenizer and the lengths it can take."""

    name: str
    denoiser: Denoiser
    tokenizer: Tokenizer | None
    length: int
    """The only length of an oracle, the longest of a network."""
    exact_length: bool = False
    """Whether `length` is the only one."""
    weights: Path | None = None
    """The directory the weights were read from."""

    def require_length(self, length: int) -> None:
        """Refuse a sequence the model cannot take."""
        if length < 1:
            raise ValueError(f"a sequence needs at least one token, got length {length}")
        if self.exact_length and length != self.length:
            raise ValueError(f"{self.name} has sequences of {self.length} tokens, not of {length}")
        if length > self.length:
            raise ValueError(
                f"{self.name} was made for at most {self.length} tokens, got length {length}"
            )

    @property
    def specials(self) -> frozenset[int]:
        """The tokens that stand for no text, such as the beginning of a sequence."""
        if self.tokenizer is None:
            return frozenset()
        added = self.tokenizer.get_added_tokens_decoder()
        return frozenset(token for token, about in added.items() if about.special)

    @property
    def ends(self) -> tuple[list[int], list[int]]:
        """The specials that a block of this model begins and ends with."""
        return ([], []) if self.tokenizer is None else tokenizers.ends(self.tokenizer)

    def can_say(self, text: str) -> bool:
        """Whether the vocabulary holds this text."""
        try:
            self.encode(text)
        except ValueError:
            return False
        return True

    def encode(self, text: str) -> list[int]:
        """Turn text into token ids."""
        if self.tokenizer is None:
            raise ValueError(f"{self.name} has no {tokenizers.TOKENIZER}, so it cannot read text")
        return tokenizers.encode(self.tokenizer, text)

    def decode(self, ids: list[int]) -> str:
        """Turn token ids into text; without a tokenizer, into numbers."""
        if self.tokenizer is None:
            return " ".join(map(str, ids))
        return tokenizers.decode(self.tokenizer, ids)


def load(
    name: str | Path = DEFAULT_MODEL,
    *,
    length: int | None = None,
    device: str | torch.device = "cpu",
) -> Model:
    """Load a model by name, or the bundled one; `length` sizes an oracle that can have any."""
    text = str(name)
    if length is not None and length < 1:
        raise ValueError(f"a sequence needs at least one token, got length {length}")
    _require_device(device, oracle=text.startswith("oracle:"))
    if text.startswith("oracle:"):
        return _oracle(text, length)
    path = directory(name)
    network = read_network(path).to(device).requires_grad_(False)
    table = path / tokenizers.TOKENIZER
    tokenizer = tokenizers.read(table) if table.is_file() else None
    if tokenizer is not None and tokenizer.get_vocab_size() != network.config.vocab_size:
        raise ValueError(
            f"{table} has {tokenizer.get_vocab_size()} tokens, "
            f"the model beside it {network.config.vocab_size}"
        )
    return Model(text, network, tokenizer, network.config.model_length, weights=path)


def directory(name: str | Path) -> Path:
    """Return where a checkpoint is: a bundled one, a directory, or what a hub id was fetched to."""
    if str(name) in bundled():
        return BUNDLED / name
    if "/" not in str(name) and not Path(name).expanduser().exists():
        raise FileNotFoundError(
            f"no model {str(name)!r}: expected one that comes along ({', '.join(bundled())}), a "
            f"checkpoint directory, a hub id (owner/name), or {ORACLES}"
        )
    return folder.locate(name)


def bundled() -> list[str]:
    """List the models that come with the package."""
    return sorted(path.parent.name for path in BUNDLED.glob(f"*/{folder.CONFIG}"))


Network = DSLModel | MdlmModel | ArModel | VpModel

BASELINES: dict[str, type[MdlmModel | ArModel | VpModel]] = {
    "mdlm": MdlmModel,
    "ar": ArModel,
    "vp": VpModel,
}


def read_network(path: Path) -> Network:
    """Read a DSL model or one of the baselines from a checkpoint directory."""
    config = folder.read_config(path)
    kind = config.pop("kind", "dsl")
    if kind == "dsl":
        return DSLModel.from_pretrained(path)
    if kind not in BASELINES:
        expected = ", ".join(["dsl", *BASELINES])
        raise ValueError(f"{path} holds a model of unknown kind {kind!r}; expected {expected}")
    config.pop("time_conditioning", None)
    network = BASELINES[kind](ModelConfig.from_dict(config))
    folder.load_tensors(path, network)
    return network.eval()


def write_network(network: Network, path: Path, *, half: bool = False) -> None:
    """Write a DSL model or one of the baselines into a checkpoint directory.

    Half the size is float16, which is read back into float32 weights.
    """
    about = network.config.to_dict() if isinstance(network, DSLModel) else network.describe()
    tensors = network.state_dict()
    if half:  # the weights; buffers such as rotary frequencies stay exact
        weights = dict(network.named_parameters())
        tensors = {n: tensor.half() if n in weights else tensor for n, tensor in tensors.items()}
    folder.save(path, about, tensors)


def _require_device(device: str | torch.device, *, oracle: bool) -> None:
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device {str(device)!r} cannot be used: {str(error).splitlines()[0]}"
        ) from error
    if oracle and torch.device(device).type != "cpu":
        raise ValueError(f"oracles run on the cpu, not on {str(device)!r}")


def _oracle(name: str, length: int | None) -> Model:
    kind = name.removeprefix("oracle:")
    if match := re.fullmatch(r"cyclic-(\d+)", kind):
        size = int(match[1])
        if not 2 <= size <= 26:
            raise ValueError(f"oracle:cyclic-K needs K in 2 … 26, got {size}")
        letters = "".join(chr(ord("A") + i) for i in range(size))
        truth: oracle.Oracle = oracle.cyclic(size)
    elif kind == "two-bit":
        letters, truth = "01", oracle.two_bit()
    elif match := re.fullmatch(r"markov(?:-(\d+))?", kind):
        size = int(match[1] or 6)
        if not 2 <= size <= 26:
            raise ValueError(f"oracle:markov-V needs V in 2 … 26, got {size}")
        letters = "".join(chr(ord("a") + i) for i in range(size))
        truth = oracle.markov(size, 8 if length is None else length)
    else:
        raise ValueError(f"unknown oracle {name!r}; expected {ORACLES}")
    tokenizer = tokenizers.characters(letters)
    return Model(name, truth, tokenizer, truth.length, exact_length=True)
