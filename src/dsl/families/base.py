"""The base class of model families: everything the library needs to know about one.

Recipes, loading, training, scoring, calibration, sampling and comparison use it. A new family is a
subclass, and an entry point in the group `dsl.families`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from dsl._util.config import shown
from dsl.families.levels import Level
from dsl.families.objective import Objective
from dsl.likelihoods.estimate import Effort, Estimator
from dsl.models import folder
from dsl.models.config import ModelConfig, NetworkShape

ONCE_SHARED = frozenset(field.name for field in fields(ModelConfig)) - {"llama"}
"""Keys that config.json of every family once had; a family ignores those of others."""


class Family(ABC):
    """A kind of network: how it is built, trained, scored, calibrated and saved."""

    name: ClassVar[str]
    """Its kind in config.json, and its `objective` in a recipe."""
    summary: ClassVar[str]
    """A short description."""
    Shape: ClassVar[type[NetworkShape]]
    """The dataclass of config.json."""
    Options: ClassVar[type]
    """The frozen dataclass of a recipe's `objective`."""
    Network: ClassVar[type[nn.Module]]
    """The class of its networks; its argument is a shape."""
    protocol: ClassVar[type]
    """The protocol that its networks implement; samplers that need another cannot use them."""
    validated: ClassVar[tuple[str, ...]]
    """The estimators that training reports; the first one is the validation loss."""
    llama: ClassVar[bool] = True
    """Whether llama blocks, which have no time input, are supported."""
    marks: ClassVar[Mapping[str, Any]] = {}
    """Additional keys in config.json, for other programs."""
    fresh: ClassVar[tuple[str, ...]] = ()
    """Name prefixes of tensors that initial weights may lack."""

    def build(self, shape: Any) -> nn.Module:
        """Make an untrained network."""
        return self.Network(shape)

    @abstractmethod
    def objective(self, network: Any, options: Any) -> Objective:
        """Return the training objective."""

    @abstractmethod
    def estimators(self, network: Any, effort: Effort) -> Sequence[Estimator]:
        """List the ways to find the likelihood of a text, each within the effort."""

    @abstractmethod
    def levels(self, network: Any) -> Sequence[Level]:
        """List the levels of corruption that a network is calibrated at."""

    def levels_at(self, network: Any, snrs: Sequence[float]) -> Sequence[Level]:
        """List levels at the given SNRs, if this family supports them."""
        raise ValueError(
            f"networks of family {self.name} have no continuous states: leave --snr out"
        )

    def shape(self, vocab_size: int, length: int, chosen: Mapping[str, Any]) -> NetworkShape:
        """Complete the chosen fields of a shape with the defaults of data and family.

        Fields of other families are ignored, so that one recipe works for all of them. Llama
        options are ignored if the family does not support them.
        """
        if (given := chosen.get("vocab_size", vocab_size)) != vocab_size:
            raise ValueError(
                f"model.vocab_size must be the tokenizer's {vocab_size}, got {shown(given)}"
            )
        known = {"vocab_size": vocab_size, "model_length": length}
        own = {name: value for name, value in chosen.items() if self.llama or name != "llama"}
        return self.Shape.from_dict({**known, **own}, ignore=ONCE_SHARED)

    def protocol_of(self, network: Any) -> type:
        """Return the protocol of one network, where that depends on its configuration."""
        return self.protocol

    def read(self, path: Path) -> nn.Module:
        """Read a network from a checkpoint directory, in evaluation mode."""
        config = folder.read_config(path)
        ignored = ONCE_SHARED | {"kind"} | set(self.marks)
        network = self.build(self.Shape.from_dict(config, ignore=frozenset(ignored)))
        folder.load_tensors(path, network)
        return network.eval()

    def write(self, network: Any, path: Path, *, half: bool = False) -> None:
        """Write a network into a checkpoint directory.

        Args:
            network: A network of this family.
            path: The directory.
            half: Write the weights as float16, which is read back into float32.
        """
        tensors = network.state_dict()
        if half:  # the weights; buffers such as rotary frequencies stay exact
            weights = dict(network.named_parameters())
            tensors = {n: t.half() if n in weights else t for n, t in tensors.items()}
        folder.save(path, {"kind": self.name, **self.marks, **network.config.to_dict()}, tensors)
