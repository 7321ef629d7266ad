"""Memory that is free, given back to the system."""

import ctypes


def give_back() -> None:
    """Have the C library return its free pages, where it can (glibc).

    What waited for a link is large and goes all at once, and small things that came between keep
    glibc from shrinking its heap: over many link cuts it would grow, with nothing in it.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        pass
