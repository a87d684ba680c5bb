"""A pytest plugin for mutation testing: measures the time of tests, or runs a list of tests.

`DSL_MUTATE_TIMES` names a JSON file for the seconds of every test, `DSL_MUTATE_ORDER` one with the
tests to run.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Generator
from pathlib import Path

import pytest

MEMORY = 16 * 2**30
"""Limit of the address space: a fault may allocate without end."""

_spent: dict[str, float] = {}


def pytest_configure() -> None:
    """Limit the memory of this process and its children."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or hard > MEMORY:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select the listed tests, in the order of the list."""
    if "DSL_MUTATE_ORDER" not in os.environ:
        return
    order = json.loads(Path(os.environ["DSL_MUTATE_ORDER"]).read_text())
    place = {test: i for i, test in enumerate(order)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in place])
    kept = [item for item in items if item.nodeid in place]
    items[:] = sorted(kept, key=lambda item: place[item.nodeid])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure CPU seconds, including fixtures and child processes.

    Wall time depends on other processes, and the choice of tests must not.
    """
    before = sum(os.times()[:4])
    result = yield
    _spent[item.nodeid] = sum(os.times()[:4]) - before
    return result


def pytest_sessionfinish() -> None:
    """Write the times if requested."""
    if "DSL_MUTATE_TIMES" in os.environ:
        Path(os.environ["DSL_MUTATE_TIMES"]).write_text(json.dumps(_spent))
