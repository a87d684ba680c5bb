"""Networks that tests put in the place of real ones."""

from __future__ import annotations

import torch
from torch import Tensor


class Double:
    """What every network has, read off the codebook of the one that a test makes up."""

    codebook: Tensor

    @property
    def vocab_size(self) -> int:
        return len(self.codebook)

    @property
    def device(self) -> torch.device:
        return self.codebook.device
