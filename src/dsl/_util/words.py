"""Counted nouns for messages."""

from __future__ import annotations


def counted(n: int, noun: str) -> str:
    """Return a number with its noun: "1 block", "2,048 blocks"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
