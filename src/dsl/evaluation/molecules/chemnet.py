"""ChemNet's features of molecules, of which FCD compares the mean and the covariance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from dsl.evaluation.molecules.chemistry import EXTRA
from dsl.extras import require

WIDTH = 512
"""Numbers that ChemNet says of a molecule."""
ROOM = 350
"""Characters that ChemNet reads: what is shorter is padded, and padding changes the features."""

Features = Float[np.ndarray, "n h"]
Tell = Callable[[str], None]


@cache
def _network() -> Any:
    return require("fcd", extra=EXTRA).load_ref_model()


@torch.no_grad()
def features(
    smiles: Sequence[str],
    *,
    device: str = "cpu",
    batch_size: int = 128,
    tell: Tell = lambda _: None,
) -> Features:
    """Return ChemNet's last state for every molecule; it reads letters, so spell them canonically.

    Raises:
        ValueError: if a molecule is longer than ChemNet reads.
    """
    if longest := max((s for s in smiles if len(s) >= ROOM), key=len, default=None):
        raise ValueError(f"ChemNet reads fewer than {ROOM} characters, got {len(longest)}")
    read: Any = require("fcd.utils", extra=EXTRA).SmilesDataset
    network = _network().to(device)
    rows = [np.zeros((0, WIDTH), dtype=np.float32)]
    for begin in range(0, len(smiles), batch_size):
        tell(f"ChemNet has read {begin:,} of {len(smiles):,} molecules")
        batch = read(smiles[begin : begin + batch_size])
        letters = torch.from_numpy(np.stack([batch[i] for i in range(len(batch))]))
        last = network(letters.transpose(1, 2).float().to(device))
        rows.append(last.cpu().numpy().copy())  # a view would keep the states of all characters
    return np.concatenate(rows)
