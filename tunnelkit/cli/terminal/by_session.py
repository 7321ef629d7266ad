"""One call, by a live session's connection or by a connection of the command's own."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tunnelkit.link.base import Prompter
    from tunnelkit.session.runtime.control_message import Request

T = TypeVar("T")


async def by_session(
    request: Callable[[], Request[T]],
    own: Callable[[Prompter | None], Awaitable[T]],
    *,
    other_cluster: bool = False,
) -> T:
    """Return the answer of the project's session; without one, or for another cluster, of `own`.

    own: called with what answers a login's questions, if there is a terminal."""
    from tunnelkit.cli.terminal.context import find_session
    from tunnelkit.cli.terminal.tty import answer_prompt
    from tunnelkit.errors import NoSessionError
    from tunnelkit.session.runtime import control_client

    if not other_cluster:
        try:
            paths = find_session()
        except NoSessionError:
            pass
        else:
            async with control_client.connect(paths) as session:
                return await session.call(request())
    prompter = answer_prompt if sys.stdin.isatty() and sys.stderr.isatty() else None
    return await own(prompter)
