"""The identity of this machine."""

from __future__ import annotations

import re
from pathlib import Path

_FILE = Path("/etc/machine-id")


def machine_id() -> str:
    """Return systemd's id of this machine; "" where there is none that lasts.

    That is so on macOS, in most containers, and where systemd has mounted an id for this boot
    alone over the file, as it can't write there. Source: man machine-id."""
    try:
        text = _FILE.read_text("ascii").strip()
        is_mounted = _FILE.stat().st_dev != _FILE.parent.stat().st_dev
    except (OSError, UnicodeDecodeError):
        return ""
    return "" if is_mounted or not re.fullmatch("[0-9a-f]{32}", text) else text
