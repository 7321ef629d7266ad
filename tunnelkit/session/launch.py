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
    """The settings and the node that was asked for (None: whichever the scheduler gives).
    take_over: the mirror's place on the cluster, from another laptop directory. attach_job: a
    job that a person made, to be used instead of one of tk's own."""

    settings: Settings
    node: str | None
    take_over: bool = False
    attach_job: str | None = None

    def save(self, path: Path) -> None:
        """Write it for the daemon, 0600, atomically."""
        data = json.dumps(
            {
                "settings": self.settings.to_json(),
                "node": self.node,
                "take_over": self.take_over,
                "attach_job": self.attach_job,
            }
        )
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
            settings = Settings.from_json(data["settings"])
            return Launch(
                settings, data["node"], bool(data.get("take_over")), data.get("attach_job")
            )
        except (OSError, ValueError, KeyError) as error:
            raise NoSessionError(
                "there is no earlier session here", cause=str(error), hint="start one: tk up"
            ) from None
