"""Events that an endpoint reports to its driver."""

from typing import Dict, NamedTuple, Union


class ChannelOpened(NamedTuple):
    """The peer opened a channel; `header` says what for."""

    channel: int
    header: Dict[str, object]


class DataReceived(NamedTuple):
    """Bytes arrived. Give credit back with `Endpoint.consume` once they are used up."""

    channel: int
    data: bytes


class EofReceived(NamedTuple):
    """The peer will send no more on this channel; we still may."""

    channel: int


class ChannelClosed(NamedTuple):
    """The channel is over in both directions; `detail` is the peer's closing detail."""

    channel: int
    detail: Dict[str, object]


class PongReceived(NamedTuple):
    """The answer to `Endpoint.ping`."""

    payload: bytes


class ByeReceived(NamedTuple):
    """The peer ends the whole conversation; nothing can be resumed after it."""

    reason: str


Event = Union[ChannelOpened, DataReceived, EofReceived, ChannelClosed, PongReceived, ByeReceived]
