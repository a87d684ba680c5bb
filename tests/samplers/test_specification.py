"""Samplers as plain data: what is written can be read, and nothing else can."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import yaml

from dsl.core.denoiser import Denoiser
from dsl.core.path import Tabulated
from dsl.core.streams import Randomness
from dsl.samplers.base import Chain
from dsl.samplers.localize import Localize
from dsl.samplers.registry import sampler
from dsl.samplers.specification import from_data, read_file, to_data
from dsl.samplers.state import State
from tests.samplers.test_conformance import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_sampler_survives_being_written_down(name: str, tmp_path: Path) -> None:
    """As data, as JSON and as YAML, whatever its fields."""
    found = sampler(name)
    data = to_data(found)
    assert from_data(data) == found
    for text in (json.dumps(data), yaml.safe_dump(data)):
        (tmp_path / "sampler").write_text(text)
        assert read_file(tmp_path / "sampler") == found


@dataclass(frozen=True)
class Foreign:
    """A sampler that the library does not know."""

    depth: int = 3
    asks: ClassVar[type] = Denoiser

    def steps(
        self, denoiser: Denoiser, start: State, *, generator: Randomness = None
    ) -> Iterator[State]:
        yield start


def test_an_unknown_sampler_is_recorded_by_its_full_name() -> None:
    """It is written, so that a record is complete, alone or in a chain; it cannot be read back."""
    wanted = {"kind": "tests.samplers.test_specification.Foreign", "depth": 5}
    assert to_data(Foreign(5)) == wanted
    chain = to_data(Chain((Foreign(5), Localize(4))))
    assert chain["samplers"][0] == wanted
    for data in (wanted, chain):
        with pytest.raises(ValueError, match=r"unknown kind of sampler 'tests\.samplers"):
            from_data(data)


def test_a_path_of_ones_own_is_not_data() -> None:
    path = Tabulated(torch.tensor([0.0, 1.0]), torch.tensor([[0.0], [5.0]]))
    with pytest.raises(ValueError, match="cannot be written as plain data"):
        to_data(Localize(4, path=path))
    with pytest.raises(ValueError, match="cannot be read from a file"):
        from_data({"kind": "Localize", "num_steps": 4, "path": [[0.0], [5.0]]})


@pytest.mark.parametrize(
    "data, message",
    [
        ([], "a mapping with a 'kind', got a list of 0"),
        (None, "a mapping with a 'kind', got None"),
        ({"kind": ["Edm"]}, "a mapping with a 'kind'"),
        (
            {"kind": "Magic"},
            "unknown kind of sampler 'Magic'; expected Chain, Strided, or a sampler",
        ),
        ({"kind": "Ancestral", "num_steps": 4, "stesp": 3}, "unknown key 'stesp'"),
        ({"kind": "Ancestral"}, "missing 'num_steps'"),
        ({"kind": "Ancestral", "num_steps": 4, "remask": {"kind": "Maybe"}}, "remask"),
        ({"kind": "Ancestral", "num_steps": 4, "draw": 5}, "draw"),
        ({"kind": "Ancestral", "num_steps": 0}, "at least one step"),
        ({"kind": "Localize", "num_steps": 4, "noise": "loud"}, "noise"),
        ({"kind": "Edm", "num_steps": 4, "heun": "false"}, "expected bool, got 'false' @ .*heun"),
        ({"kind": "Edm", "num_steps": 2.7}, "expected int, got 2.7"),
        ({"kind": "Edm", "num_steps": 10**30}, "expected an int of 64 bits"),
        ({"kind": "Edm", "num_steps": 4, "churn_min": "Infinity"}, "expected float"),
        ({"kind": "Chain", "sampler": []}, "a list of 'samplers' and nothing else"),
        ({"kind": "Chain", "samplers": 5}, "a list of 'samplers' and nothing else"),
        ({"kind": "Chain", "samplers": []}, "a list of 'samplers' and nothing else"),
        ({"kind": "Chain", "samplers": [5]}, "a mapping with a 'kind', got 5"),
    ],
)
def test_specifications_that_cannot_be_read_are_explained(data: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        from_data(data)
    assert "\n" not in str(refused.value)
