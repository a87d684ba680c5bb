"""`dsl reproduce`: draw a figure of the paper, or run its toy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsl._util.registry import Registry

ITEMS: Registry[Any] = Registry("dsl.reproductions", "item")
"""Reproducible items: modules with a `main`."""


def main(arguments: Sequence[str]) -> None:
    """Run an item by its name."""
    if not arguments or arguments[0] in ("-h", "--help", "--list"):
        print("usage: dsl reproduce ITEM [OPTIONS]\n\nitems:")
        for name in ITEMS:
            print(f"  {name:<10}{(ITEMS[name].__doc__ or '').partition(': ')[2].splitlines()[0]}")
        return
    ITEMS.find(arguments[0], "the item").main(arguments[1:])
