"""Dropout seeded per item, independent of the batch.

torch's own draws one mask for the whole batch from the global generator, so how a batch is cut
into micro-batches and shared by ranks would change the run. Here an element is dropped or kept by
a hash of (the item's seed, the layer, the element's place), which needs no state: the same on any
device, recomputed or compiled.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

MASK_31 = 0x7FFFFFFF


class ItemDropout(nn.Module):
    """Drop elements with probability p, each item of the batch by its own seed."""

    seeds: Int[Tensor, "b"] | None

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.layer = 0
        self.seeds = None

    def forward(self, x: Float[Tensor, "b l h"]) -> Float[Tensor, "b l h"]:
        """Drop elements and rescale the rest; without seeds, use torch's dropout."""
        if not self.training or self.p == 0:
            return x
        if self.seeds is None:
            return nn.functional.dropout(x, self.p)
        b, length, h = x.shape
        place = torch.arange(length * h, device=x.device).view(1, length, h)
        key = self.seeds.view(b, 1, 1) + self.layer * 0x632BE5AB
        kept = _hash(key, place) >= int(self.p * 2**31)
        return x * kept.to(x.dtype) / (1 - self.p)


def seed_dropout(module: nn.Module, seeds: Int[Tensor, "b"] | None) -> None:
    """Give every dropout layer of a module the seeds of the items it will see next."""
    layers = [inner for inner in module.modules() if isinstance(inner, ItemDropout)]
    for number, layer in enumerate(layers):
        layer.layer, layer.seeds = number, seeds


def _hash(key: Int[Tensor, "b 1 1"], place: Int[Tensor, "1 l h"]) -> Int[Tensor, "b l h"]:
    """Hash a key and a place to a number below 2^31, uniform over the places.

    31-bit numbers times odd multipliers below 2^31 stay below 2^62: torch has no unsigned 64-bit
    product, and a signed one would overflow. The key is mixed before it meets the place: otherwise
    keys that differ in a low bit would share one mask, with neighbouring places exchanged.
    """
    low = _mix(key & MASK_31)
    high = _mix(_mix(low ^ ((key >> 31) & MASK_31)) ^ ((key >> 62) & 3))
    mixed = _fold((place ^ low) * 0x3C6EF35F)
    return _mix(mixed ^ high)


def _mix(number: Tensor) -> Tensor:
    # The sum leaves no fixed point at zero.
    mixed = _fold(((number + 0x1E3779B9) & MASK_31) * 0x1B873593)
    return _fold(mixed * 0x27D4EB2F)


def _fold(product: Tensor) -> Tensor:
    return (product ^ (product >> 29)) & MASK_31
