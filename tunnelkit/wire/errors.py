"""Errors of the wire."""


class WireError(Exception):
    """Base of all wire errors."""


class ProtocolError(WireError):
    """The peer broke the protocol, or the bytes are no tunnelkit wire at all. The link
    and the endpoint are unusable; nothing can be resumed."""


class ChannelError(WireError):
    """The caller used a channel in a state that does not allow it."""
