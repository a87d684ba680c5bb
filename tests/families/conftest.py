"""A small network of every family, with a vocabulary of five letters and six positions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dsl.checkpoints.loading import Model
from dsl.data.tokenizers import characters
from dsl.families.base import Family
from dsl.families.registry import FAMILIES

VOCABULARY, LENGTH = 5, 6
SIZES = {"hidden_dim": 16, "cond_dim": 4, "n_blocks": 2, "n_heads": 2, "dropout": 0.0}
TOKENS = torch.randint(VOCABULARY, (64, LENGTH), generator=torch.Generator().manual_seed(0))


CORE = ("dsl", "mdlm", "ar", "vp")
"""Families that keep the general laws in every run; the others have tests of their own there, and
keep these in `make test-slow`."""


NAMED = [name if name in CORE else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES]
"""All families, for tests that each must pass."""


@pytest.fixture(params=NAMED)
def family(request: pytest.FixtureRequest) -> Family:
    """Every family of the table."""
    return FAMILIES[request.param]


def untrained(family: Family, **changes: Any) -> Any:
    """Make a network as training finds it."""
    return family.build(family.shape(VOCABULARY, LENGTH, SIZES | changes)).eval()


def awake(family: Family, **changes: Any) -> Any:
    """Make a network in which no branch is silent."""
    return stirred(untrained(family, **changes))


def stirred(network: nn.Module) -> Any:
    """Move every weight away from where it begins."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return network.eval()


def loaded(family: Family) -> Model:
    """Make a model as loading would."""
    network = awake(family)
    return Model("mine", network, characters("abcde"), LENGTH, family)
