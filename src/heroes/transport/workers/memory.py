"""How a process that trains keeps its memory from one step to the next."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h numbers them
_ALL = 2**31 - 1
_LARGE = 2**30  # bytes; what is larger is returned when it is freed


def keep_memory() -> None:
    """Keep what is freed for the next tensor of its size, instead of returning it to the system.

    A step frees all activations and the next one needs as many: to fetch every page of them anew took an
    eighth of a step of the CNN. Only glibc can be told so; elsewhere nothing happens.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_TRIM_THRESHOLD, _ALL)
        libc.mallopt(_MMAP_THRESHOLD, _LARGE)
