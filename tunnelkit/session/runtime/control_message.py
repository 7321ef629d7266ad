"""Typed messages of the control socket: the base of `control_calls`.

A message to the session is parsed where it arrives. What the session sends back, answers and
notices, is JSON that commands print: TypedDicts of `control_answers`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import (
    TYPE_CHECKING,
    ClassVar,
    Generic,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
    get_type_hints,
)

from tunnelkit.errors import TunnelkitError

if TYPE_CHECKING:
    from tunnelkit.mux.rpc import Handler

Answer = TypeVar("Answer")
Content = TypeVar("Content", bound=Mapping[str, object])


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Message:
    """A message with typed fields.

    It works as a frozen dataclass, without the generated code: that takes milliseconds to build,
    and `tk status` runs in shell prompts. A field's default is the class attribute.
    """

    NAME: ClassVar[str]

    def __init__(self, **fields: object) -> None:
        self.__dict__.update(fields)

    def to_json(self) -> dict[str, object]:
        """Return the given fields as a JSON object."""
        return dict(self.__dict__)

    @classmethod
    def parse(cls, data: Mapping[str, object]) -> Self:
        """Return the message of a JSON object; unknown fields, another version's, are left out.

        Raises TunnelkitError if a field is missing or has another type.
        """
        # Not at the top: a command that starts fast parses nothing.
        from tunnelkit.messages.json_types import has_type

        kinds = {name: kind for name, kind in get_type_hints(cls).items() if name != "NAME"}
        for name, kind in kinds.items():
            if name in data and not has_type(data[name], kind):
                raise _unreadable(cls.NAME, f"{name!r} has a value of the wrong type")
            if name not in data and not hasattr(cls, name):
                raise _unreadable(cls.NAME, f"{name!r} is missing")
        return cls(**{name: data[name] for name in kinds if name in data})


class Request(Message, Generic[Answer]):
    """A call; its result has the type `Answer`."""

    @classmethod
    def served_by(cls, handler: Callable[[Self], Awaitable[Answer]]) -> tuple[str, Handler]:
        """Return an entry for a table of handlers, which parses what arrives."""

        async def serve(params: dict[str, object]) -> Answer:
            return await handler(cls.parse(params))

        return cls.NAME, serve


class Notice(Generic[Content]):
    """A kind of message from the session to commands that wants no answer."""

    def __init__(self, name: str) -> None:
        self.name = name

    def read_by(self, handler: Callable[[Content], Awaitable[None]]) -> tuple[str, Handler]:
        """Return an entry for a table of handlers."""
        return self.name, cast("Handler", handler)


def _unreadable(name: str, why: str) -> TunnelkitError:
    return TunnelkitError(
        f"a message {name!r} can't be read",
        cause=why,
        hint="after an update of tk: `tk down --keep`, then `tk up`",
    )
