"""The pods where the API server has accepted a command before."""

from __future__ import annotations

from tunnelkit.errors import ConnectionFailed
from tunnelkit.link.kube.api_error import refusal

#: An API server that has just started knows no rights yet (403), and a kubelet no pods (404).
_WHILE_STARTING = (403, 404)


class AcceptedPods:
    """One for each link. where: context and namespace."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._names: set[str] = set()

    def add(self, pod: str) -> None:
        """Note that a command was accepted there."""
        self._names.add(pod)

    def refusal(self, pod: str, status: int, text: str, *, what: str) -> ConnectionFailed:
        """Return the error for an HTTP status, as `api_error.refusal` does.

        One that a server's start explains passes."""
        error = refusal(status, text, what=what, where=self._where)
        if pod in self._names and status in _WHILE_STARTING:
            error.transient = True
            error.hint = "tk tries again: a server that has just started refuses, too"
        return error
