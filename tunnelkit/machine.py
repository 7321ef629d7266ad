"""The identity of this machine."""

from __future__ import annotations

from pathlib import Path

_FILE = Path("/etc/machine-id")


def machine_id() -> str:
    """Return systemd's id of this machine; "" where there is none (macOS, most containers).

    Source: man machine-id. It stays over reboots and with another name of the host."""
    try:
        return _FILE.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
