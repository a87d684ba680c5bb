"""Fixtures shared by all tests: a fixed seed, and small oracles and models with known answers."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TypeVar

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor

from dsl.core import oracle
from dsl.core.streams import stream
from dsl.models.config import ModelConfig
from dsl.models.dsl import DSLModel

R = TypeVar("R", pytest.TestReport, pytest.CollectReport)

# Some virtual machines report AMX but not the shape of its tiles, and bfloat16 products die there.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Two workers share two cores: more threads than cores only wait for each other. The commands that
# tests start read the variable.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)


# No deadline: a busy machine must not fail a test. The examples of the default profile are the same
# in every run; HYPOTHESIS_PROFILE=explore draws new ones.
settings.register_profile(
    "dsl", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile("explore", settings.get_profile("dsl"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dsl"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests an hour: a limit is for what hangs, on a machine that others use too."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _no_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _no_skip((yield))


def _no_skip(report: R) -> R:
    """Where DSL_NO_SKIP is set, a test that skips for want of a program or an extra has failed."""
    if report.skipped and os.environ.get("DSL_NO_SKIP"):
        report.outcome = "failed"
        report.longrepr = f"skipped although DSL_NO_SKIP is set: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def generator() -> torch.Generator:
    return stream(0)


@pytest.fixture(params=["cyclic", "two-bit", "markov"])
def truth(request: pytest.FixtureRequest) -> oracle.Oracle:
    """One of the exact oracles."""
    return {
        "cyclic": lambda: oracle.cyclic(5),
        "two-bit": oracle.two_bit,
        "markov": lambda: oracle.markov(4, 3),
    }[request.param]()


@pytest.fixture(params=["dit-table", "dit-unit", "encoder-table"])
def model(request: pytest.FixtureRequest) -> DSLModel:
    """A small model with every parameter away from its zero initialisation."""
    backbone, values = request.param.split("-")
    return perturbed(
        ModelConfig(
            11,
            codebook_dim=6,
            hidden_dim=16,
            cond_dim=4,
            n_blocks=2,
            n_heads=2,
            model_length=12,
            backbone=backbone,
            values=values,
        )
    )


def assert_near(ours: Tensor, theirs: Tensor, share: float = 1e-5) -> None:
    """Ask that two tensors agree up to a share of the largest entry.

    Sums in float32 round by a share of their largest terms, in an order that is the CPU's; an
    absolute limit, or one relative to an entry near zero, would hold on some CPUs only.
    """
    scale = float(theirs.detach().abs().max())
    torch.testing.assert_close(ours, theirs, atol=share * scale, rtol=0)


def assert_unit_norm(codebook: Tensor) -> None:
    """Check that every row lies on the unit sphere."""
    norms = codebook.detach().norm(dim=-1)
    torch.testing.assert_close(norms, torch.ones_like(norms), atol=1e-4, rtol=0)


def perturbed(config: ModelConfig) -> DSLModel:
    """Make a model in which no branch is silent."""
    model = DSLModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model
