"""What a session was asked to be: handed to its daemon, kept for its successor."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.config.schema import Settings
from tunnelkit.errors import NoSessionError


@dataclass(frozen=True)
class Launch:
    """The settings and the node that was asked for (None: whichever the scheduler gives)."""

    settings: Settings
    node: str | None

    def save(self, path: Path) -> None:
        """Write it for the daemon, 0600, atomically."""
        data = json.dumps({"settings": self.settings.to_json(), "node": self.node})
        temporary = path.with_suffix(f".{os.getpid()}")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(data)
        temporary.replace(path)

    @staticmethod
    def load(path: Path) -> Launch:
        """Read what `save` wrote. Raises NoSessionError if nothing usable is there."""
        try:
            data = json.loads(path.read_text())
            return Launch(Settings.from_json(data["settings"]), data["node"])
        except (OSError, ValueError, KeyError) as error:
            raise NoSessionError(
                "there is no earlier session here", cause=str(error), hint="start one: tk up"
            ) from None
