"""One call, by a live session's connection or by a connection of the command's own."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tunnelkit.link.base import Prompter
    from tunnelkit.session.runtime.control_message import Request
    from tunnelkit.session.runtime.paths import SessionPaths

T = TypeVar("T")


async def by_session(
    request: Callable[[], Request[T]],
    own: Callable[[Prompter | None], Awaitable[T]],
    *,
    other_cluster: bool = False,
) -> T:
    """Return the answer of the project's session; without one, or for another cluster, of `own`.

    own: called with what answers a login's questions, if there is a terminal."""
    from tunnelkit.session.runtime import control_client

    paths = None if other_cluster else live_session()
    if paths is None:
        return await own(prompter())
    async with control_client.connect(paths) as session:
        return await session.call(request())


def live_session() -> SessionPaths | None:
    """Return the paths of the project's session; None if there is none."""
    from tunnelkit.cli.terminal.context import find_session
    from tunnelkit.errors import NoSessionError

    try:
        return find_session()
    except NoSessionError:
        return None


def prompter() -> Prompter | None:
    """Return what answers a login's questions; None without a terminal."""
    from tunnelkit.cli.terminal.tty import answer_prompt

    return answer_prompt if sys.stdin.isatty() and sys.stderr.isatty() else None
