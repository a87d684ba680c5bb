"""Fusing the blocks of a network by torch.compile."""

from __future__ import annotations

import os
import shutil

from torch import nn


def fuse(model: nn.Module) -> None:
    """Compile the blocks of a network in place: they are alike, so one compilation serves all."""
    for name, module in model.named_modules():
        if name.rpartition(".")[2] == "blocks" and isinstance(module, nn.ModuleList):
            for block in module:
                block.compile()


def require_compiler() -> None:
    """Refuse to compile where nothing can."""
    wanted = os.environ.get("CXX", "g++")
    if not any(map(shutil.which, (wanted, "g++", "clang++", "cl"))):
        raise ValueError(
            f"trainer.compile needs a C++ compiler, and {wanted} was not found: install one, "
            "or leave trainer.compile out"
        )
