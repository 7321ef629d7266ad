"""The agent's services that the laptop's side of debugging uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tunnelkit.messages.agent_calls import Caller
from tunnelkit.mux.channel import Channel


class AgentApi(Caller, Protocol):
    """Calls, and channels; session/agent/client.py has both."""

    def open(self, header: Mapping[str, object]) -> Channel:
        """Open a channel to the agent."""
        ...
