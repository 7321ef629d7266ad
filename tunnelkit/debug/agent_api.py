"""The agent's services that the laptop's side of debugging uses."""

from __future__ import annotations

from typing import Any, Protocol

from tunnelkit.mux.channel import Channel


class AgentApi(Protocol):
    """Calls, and channels; session/agent/client.py has both."""

    async def call(self, method: str, **params: Any) -> Any:
        """Call a method of the agent. Raises TunnelkitError."""
        ...

    def open(self, header: dict[str, Any]) -> Channel:
        """Open a channel to the agent."""
        ...
