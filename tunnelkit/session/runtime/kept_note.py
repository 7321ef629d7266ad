"""The note of kept jobs: one small file on the laptop, which every command may read at its start.

`tk submit` begins it, sessions and `tk keep` bring it up to date. Reading it creates nothing, asks
nobody and loads little.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

_NAME = "kept-jobs.json"
_MOST_BYTES, _MOST_ENTRIES = 32_768, 32
#: An entry of a job of which nothing was heard for so long is left out.
_FORGOTTEN_S = 14 * 86400


if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypedDict

    class NotedJob(TypedDict):
        """A job that may be kept. login: its cluster. until_s: None while it isn't kept.

        seen_s: when tk has last heard of it."""

        login: str
        job: str
        seen_s: float
        node: str | None
        since_s: float | None
        until_s: float | None
        gpus: float | None
        cpus: float | None


def noted_jobs() -> list[NotedJob]:
    """Return what the note holds; [] if there is none."""
    try:
        with open(_path(), "rb") as file:
            data = file.read(_MOST_BYTES)
        import json

        found = json.loads(data)
    except (OSError, ValueError, RecursionError):
        return []
    entries = found[:_MOST_ENTRIES] if isinstance(found, list) else []
    return [job for one in entries if (job := _read(one)) is not None]


def kept_now() -> list[NotedJob]:
    """Return the jobs that are kept at this moment, as far as tk has heard."""
    now = time.time()
    return [one for one in noted_jobs() if one["until_s"] is not None and one["until_s"] > now]


def is_there() -> bool:
    """Return True if there is a note."""
    return _path().exists()


def write(jobs: Iterable[NotedJob]) -> None:
    """Write the note in one step, for this user alone; without jobs there is none."""
    import json

    oldest = time.time() - _FORGOTTEN_S
    found = [one for one in jobs if one["seen_s"] > oldest][-_MOST_ENTRIES:]
    path = _path()
    if not found:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{_NAME}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(found, file)
    draft.replace(path)


def note_submitted(login: str, job: str) -> None:
    """Note a job that will be kept if it fails."""
    jobs = [one for one in noted_jobs() if (one["login"], one["job"]) != (login, job)]
    write([*jobs, not_kept(login, job, time.time())])


def not_kept(login: str, job: str, seen_s: float) -> NotedJob:
    """Return the entry of a job that isn't kept, yet."""
    return {
        "login": login,
        "job": job,
        "seen_s": seen_s,
        "node": None,
        "since_s": None,
        "until_s": None,
        "gpus": None,
        "cpus": None,
    }


def _path() -> Path:
    """Return the note's path: in `paths.state_root`, without what finding that loads."""
    override = os.environ.get("TK_STATE_DIR")
    if override:
        return Path(override) / _NAME
    if sys.platform == "linux":
        place = os.environ.get("XDG_STATE_HOME", "").strip() or os.path.expanduser("~/.local/state")
        return Path(place) / "tunnelkit" / _NAME
    from tunnelkit.session.runtime.paths import state_root

    return state_root() / _NAME


def _read(one: object) -> NotedJob | None:
    if not isinstance(one, dict):
        return None

    def number(name: str) -> float | None:
        value = one.get(name)
        return value if isinstance(value, int | float) and abs(value) < 1e12 else None

    login, job, node = one.get("login"), one.get("job"), one.get("node")
    if not isinstance(login, str) or not isinstance(job, str):
        return None
    return {
        "login": login[:200],
        "job": job[:80],
        "seen_s": number("seen_s") or 0.0,
        "node": node[:200] if isinstance(node, str) else None,
        "since_s": number("since_s"),
        "until_s": number("until_s"),
        "gpus": number("gpus"),
        "cpus": number("cpus"),
    }
