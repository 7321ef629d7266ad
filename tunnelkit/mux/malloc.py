"""Return of free memory to the system."""

import ctypes

_M_ARENA_MAX = -8


def one_heap() -> None:
    """Keep glibc from making a heap for each thread, which `give_back` could not shrink.

    Call it before there are threads; with Python's lock one heap is enough."""
    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    except (AttributeError, OSError, TypeError):
        pass


def give_back() -> None:
    """Have the C library return its free pages, where it can (glibc).

    Data that waits for a link is large and is freed at once, but small objects in between keep
    glibc from shrinking its heap: over many link cuts the heap would grow.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        pass
