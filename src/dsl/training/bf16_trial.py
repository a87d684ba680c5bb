"""A script that tries bfloat16 products in a child process.

A virtual machine may report instructions that it lacks; then only this process crashes.
"""

from __future__ import annotations

import json
import sys

import torch
from torch import nn

NEAR = 0.05
"""Largest relative error of a product; bfloat16 has 8 bits."""


def attempt(rows: int, products: list[tuple[int, int]]) -> bool:
    """Return whether products of these shapes and an attention are right, forward and backward."""
    torch.manual_seed(0)
    right = True
    for wide, narrow in products:
        layer, x = nn.Linear(narrow, wide), torch.randn(rows, narrow, requires_grad=True)
        with torch.autocast("cpu", torch.bfloat16):
            made = layer(x).float()
        made.square().mean().backward()
        exact = nn.functional.linear(x, layer.weight, layer.bias)
        assert x.grad is not None
        right &= bool((made - exact).norm() <= NEAR * exact.norm() and x.grad.isfinite().all())
    with torch.autocast("cpu", torch.bfloat16):
        q = torch.randn(2, 2, 64, 32, dtype=torch.bfloat16, requires_grad=True)
        made = nn.functional.scaled_dot_product_attention(q, q, q).float()
    made.sum().backward()
    return right and bool(made.isfinite().all())


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    sys.exit(0 if attempt(wanted["rows"], [tuple(pair) for pair in wanted["products"]]) else 1)
