"""Keep memory that is freed: a network on a CPU asks for the same sizes at every call."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of glibc's malloc.h


def keep_freed_memory() -> bool:
    """Ask glibc not to give memory back to the system between calls; tell whether it agreed.

    What is given back is paid for again, page by page, by the tensors of the next call. Older
    versions keep blocks up to 32 MB only. Other C libraries are left alone.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # the threshold first: the other two switch off the one that adapts, and refused it would stay
    # at its least
    if not any(mallopt(M_MMAP_THRESHOLD, size) for size in (2**30, 2**25)):
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, 2**31 - 1)) and bool(mallopt(M_TOP_PAD, 2**26))
