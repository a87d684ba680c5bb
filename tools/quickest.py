"""A pytest plugin for the mutation tests: takes the time of every test, or runs some in an order.

`DSL_MUTATE_TIMES` names a JSON file to write seconds by test to; `DSL_MUTATE_ORDER` one that
lists the tests to run.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Generator
from pathlib import Path

import pytest

MEMORY = 16 * 2**30
"""A fault may ask for all memory there is; it gets so much address space."""

_spent: dict[str, float] = {}


def pytest_configure() -> None:
    """Limit the memory of this process and its children."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or hard > MEMORY:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the listed tests, in the order of the list."""
    if "DSL_MUTATE_ORDER" not in os.environ:
        return
    order = json.loads(Path(os.environ["DSL_MUTATE_ORDER"]).read_text())
    place = {test: i for i, test in enumerate(order)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in place])
    kept = [item for item in items if item.nodeid in place]
    items[:] = sorted(kept, key=lambda item: place[item.nodeid])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Count the processor's seconds, fixtures and child processes included.

    Those of the clock depend on who else is busy, and the choice of tests must not.
    """
    before = sum(os.times()[:4])
    result = yield
    _spent[item.nodeid] = sum(os.times()[:4]) - before
    return result


def pytest_sessionfinish() -> None:
    """Write the times if that was asked for."""
    if "DSL_MUTATE_TIMES" in os.environ:
        Path(os.environ["DSL_MUTATE_TIMES"]).write_text(json.dumps(_spent))
