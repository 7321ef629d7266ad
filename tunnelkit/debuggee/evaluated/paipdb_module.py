"""OpenPAI's `paipdb`, as text for a debuggee: its functions stop in the debugger that is there."""

import debugpy


def settrace(*args: object, **given: object) -> None:
    """Stop in the caller. No port is opened, so `port=...` is not needed."""
    debugpy.breakpoint()


set_trace = settrace
