"""Which of several processes this one is, when torchrun or accelerate started them."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Process:
    """One of `count` processes that share a job."""

    rank: int = 0
    count: int = 1

    def wait(self) -> None:
        """Wait until all processes have come this far."""
        if self.count > 1:
            from accelerate import PartialState

            PartialState().wait_for_everyone()


def this_process() -> Process:
    """Find this process's place; alone, if nobody launched it with others."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Process()
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=not torch.cuda.is_available())
    return Process(state.process_index, state.num_processes)
