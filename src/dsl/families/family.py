"""What a family of models is: everything that others need to know about a kind of network.

Recipes, loading, training, scoring, calibration, sampling and comparison ask the family. A new one
is a subclass in a file of its own, and a line in `families/table.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from dsl.denoiser import Question
from dsl.likelihoods.effort import Effort
from dsl.likelihoods.estimate import Estimator
from dsl.models import folder
from dsl.models.config import ModelConfig, NetworkShape
from dsl.teacher_forcing import Level
from dsl.training.objective import Objective

ONCE_SHARED = frozenset(field.name for field in fields(ModelConfig)) - {"llama"}
"""Keys that config.json of every family had while all shared one; a family ignores the foreign."""


class Family(ABC):
    """A kind of network: how it is built, trained, asked, scored, calibrated, kept."""

    name: ClassVar[str]
    """Its kind in config.json, and its `objective` in a recipe."""
    summary: ClassVar[str]
    """What it is, in half a line."""
    Shape: ClassVar[type[NetworkShape]]
    """The dataclass of config.json."""
    Options: ClassVar[type]
    """The frozen dataclass of a recipe's `objective`."""
    answers: ClassVar[frozenset[Question]]
    """What its networks can be asked; a sampler that asks more cannot walk them."""
    validated: ClassVar[tuple[str, ...]]
    """The estimators that training reports; the first one is the validation loss."""
    llama: ClassVar[bool] = True
    """Whether its blocks may be llama's, which read no clock."""
    marks: ClassVar[Mapping[str, Any]] = {}
    """What config.json says besides, for other programs."""
    fresh: ClassVar[tuple[str, ...]] = ()
    """How the names of tensors begin that weights to begin a run with may lack."""

    @abstractmethod
    def build(self, shape: Any) -> nn.Module:
        """Make an untrained network."""

    @abstractmethod
    def objective(self, network: Any, options: Any) -> Objective:
        """Say what a network is trained for."""

    @abstractmethod
    def estimators(self, network: Any, effort: Effort) -> Sequence[Estimator]:
        """List the ways to find the likelihood of a text, each within the effort."""

    @abstractmethod
    def levels(self, network: Any) -> Sequence[Level]:
        """List the levels of corruption that a network is calibrated at."""

    def levels_at(self, network: Any, snrs: Sequence[float]) -> Sequence[Level]:
        """List the levels of given SNRs, if a network of this family can be asked at them."""
        raise ValueError(
            f"a network of family {self.name} has no SNR to be asked at: leave --snr out"
        )

    def shape(self, vocab_size: int, length: int, chosen: Mapping[str, Any]) -> NetworkShape:
        """Complete the chosen fields of a shape by what the data and the family say.

        Fields of other families are left aside, so that one recipe serves them all; so are the
        options of llama's blocks, where those cannot be had.
        """
        known = {"vocab_size": vocab_size, "model_length": length}
        own = {name: value for name, value in chosen.items() if self.llama or name != "llama"}
        return self.Shape.from_dict({**known, **own}, ignore=ONCE_SHARED)

    def answered_by(self, network: Any) -> frozenset[Question]:
        """Say what one network can be asked, where that depends on its shape."""
        return self.answers

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
