"""The one place that knows this process's rank, and how ranks synchronise."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Process:
    """One of `count` processes that share a job; they connect when they first synchronise."""

    rank: int = 0
    count: int = 1
    on_cpu: bool | None = None
    """Whether to use the CPU; None uses a GPU if there is one."""

    @property
    def without_gpu(self) -> bool:
        """Whether this process uses the CPU."""
        import torch

        return bool(self.on_cpu) or not torch.cuda.is_available()

    def _state(self) -> Any:
        from accelerate import PartialState

        return PartialState(cpu=self.without_gpu)

    def wait(self) -> None:
        """Wait for all processes."""
        if self.count > 1:
            self._state().wait_for_everyone()

    @contextmanager
    def first(self) -> Iterator[None]:
        """Run a block in rank 0 first, then in the others."""
        if self.count == 1:
            yield
            return
        with self._state().main_process_first():
            yield

    def gather(self, own: list[Any]) -> list[Any]:
        """Concatenate the lists of all processes."""
        if self.count == 1:
            return own
        self._state()
        from accelerate.utils import gather_object

        gathered: list[Any] = gather_object(own)
        return gathered

    def agree(self, decide: Callable[[], T]) -> T:
        """Return rank 0's decision in every process; its ValueError is raised in all of them."""
        if self.count == 1:
            return decide()
        self._state()
        from accelerate.utils import broadcast_object_list

        shared: list[Any] = [None, None]
        if self.rank == 0:
            try:
                shared[0] = decide()
            except ValueError as error:
                shared[1] = str(error)
        broadcast_object_list(shared)
        if shared[1] is not None:
            raise ValueError(shared[1])
        decided: T = shared[0]
        return decided


def this_process(*, on_cpu: bool | None = None) -> Process:
    """Return the rank and number of processes that torchrun or accelerate launched."""
    rank, count = (int(os.environ.get(name, n)) for name, n in (("RANK", 0), ("WORLD_SIZE", 1)))
    return Process(rank, count, on_cpu)


def leave() -> None:
    """Leave the process group after all processes are done.

    The C++ runtime may abort a process that exits while threads of its group are running.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()
