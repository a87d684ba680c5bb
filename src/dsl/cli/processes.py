"""Which of several processes this one is, and how they keep out of each other's way."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsl.likelihoods.estimate import Estimate


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

    def join(
        self, estimates: Mapping[str, Estimate], mine: Sequence[int], total: int
    ) -> dict[str, Estimate]:
        """Collect every process's estimates, in the order of the whole corpus."""
        if self.count == 1:
            return dict(estimates)
        import torch
        from accelerate.utils import gather_object

        from dsl.likelihoods.estimate import Estimate

        own = {name: estimate.values.cpu() for name, estimate in estimates.items()}
        shares = gather_object([(list(mine), own)])
        joined = {}
        for name in own:
            like = next(share[name] for indices, share in shares if indices)
            whole = torch.empty(total, *like.shape[1:], dtype=like.dtype)
            for indices, share in shares:
                if indices:
                    whole[indices] = share[name]
            joined[name] = Estimate(whole)
        return joined


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


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a directory, refusing a second command in it; ranks of one job share the lock."""
    import fcntl

    if rank() > 0:
        yield
        return
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another process is at work in {folder}") from None
        yield
