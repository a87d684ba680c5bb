"""Which of several processes this one is, and how they come together."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


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

    def gather(self, own: list[Any]) -> list[Any]:
        """Collect what every process has, one after the other."""
        if self.count == 1:
            return own
        from accelerate.utils import gather_object

        gathered: list[Any] = gather_object(own)
        return gathered

    def agree(self, decide: Callable[[], T]) -> T:
        """Let the first process decide, and all do as it says; a refusal is everyone's."""
        if self.count == 1:
            return decide()
        from accelerate.utils import broadcast_object_list

        said: list[Any] = [None, None]
        if self.rank == 0:
            try:
                said[0] = decide()
            except ValueError as error:
                said[1] = str(error)
        broadcast_object_list(said)
        if said[1] is not None:
            raise ValueError(said[1])
        decided: T = said[0]
        return decided


def part() -> None:
    """Leave the other processes in good order, when all have done their share.

    A process that ends while the threads of its group still run may be aborted by the C++ runtime.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()


def rank() -> int:
    """Return this process's rank without joining the others."""
    return int(os.environ.get("RANK", "0"))


def this_process() -> Process:
    """Find this process's place; alone, if nobody launched it with others."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Process()
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=not torch.cuda.is_available())
    return Process(state.process_index, state.num_processes)
