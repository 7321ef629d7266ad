"""A remote root as the agent holds it: is it there, and is it still this laptop's?"""

import os
from typing import Dict, Optional

from tunnelkit.agent.mirror.dirfd_tree import open_directory

_OWNER_BYTES = 4096


class RootRefused(Exception):
    """The root can't be used. code: "no-root" or "displaced"; owner: the file's text, then."""

    def __init__(self, code: str, message: str, owner: Optional[str] = None) -> None:
        super().__init__(message)
        self.code = code
        self.owner = owner

    def as_json(self) -> Dict[str, str]:
        """The refusal as a JSON object."""
        answer = {"error": self.code, "message": str(self)}
        return answer if self.owner is None else dict(answer, owner=self.owner)


class MirroredRoot:
    """An open root. `close` at the end. Raises Refused, from the start or at a `check`."""

    def __init__(self, path: str, owner: Optional[Dict[str, object]]) -> None:
        """path: absolute; owner: {"file", "id"}, or None if there is no owner file to check."""
        self.path = path
        self._owner = owner
        self.fd = -1
        if not path.startswith("/"):
            raise RootRefused("no-root", f"{path!r} is no absolute path")
        try:
            self.fd = open_directory(_bytes(path))
        except (OSError, ValueError) as error:
            raise self._no_root(error) from None
        try:
            self.check()
        except BaseException:
            self.close()
            raise

    @property
    def identity(self) -> "tuple[int, int]":
        """Device and inode."""
        state = os.fstat(self.fd)
        return state.st_dev, state.st_ino

    def check(self) -> None:
        """See that the path still leads here, that we may write, and whose it is."""
        try:
            state = os.stat(_bytes(self.path))
        except OSError as error:
            raise self._no_root(error) from None
        if (state.st_dev, state.st_ino) != self.identity:
            raise RootRefused("no-root", f"{self.path} is another directory now")
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=self.fd):
            raise RootRefused("no-root", f"{self.path} can't be written")
        if self._owner is not None:
            self._check_owner(str(self._owner["file"]), str(self._owner["id"]))

    def _check_owner(self, file: str, owner_id: str) -> None:
        try:
            fd = os.open(_bytes(file), os.O_RDONLY | os.O_NONBLOCK)
            try:
                text = os.read(fd, _OWNER_BYTES).decode("utf-8", "replace")
            finally:
                os.close(fd)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise RootRefused("no-root", f"{file} can't be read: {error.strerror}") from None
        if owner_id not in text:
            raise RootRefused("displaced", f"{self.path} has another owner", text)

    def _no_root(self, error: Exception) -> RootRefused:
        why = getattr(error, "strerror", None) or str(error)
        return RootRefused("no-root", f"{self.path}: {why}")

    def close(self) -> None:
        """Let go of it."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
