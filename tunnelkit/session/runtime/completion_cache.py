"""Cache of names seen on clusters, for command line completion.

Pressing TAB must cause no network traffic. So sessions and `tk doctor` store the names that
they see, and completion only reads them. One file, 0600, in the user's cache directory.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tunnelkit.errors import SchedulerError, TunnelkitError
from tunnelkit.session.runtime.paths import cache_root, write_private

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tunnelkit.model import Completed
    from tunnelkit.scheduler.base import Command, Scheduler

    Run = Callable[[Command], Awaitable[Completed]]

#: More names are of no use for completion, and would slow down every TAB.
MAX_NAMES = 5_000
MAX_PROJECTS = 200
#: TYPE/NAME on Kubernetes has a slash.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:\[\]/-]{0,99}")
#: A list of pods that is larger is not read.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ClusterNames:
    """Names on one cluster; `jobs` are the user's own, `owners` those of pods, as TYPE/NAME.

    problem: the scheduler's message if it gave no names, else None.
    """

    nodes: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    problem: str | None = None


def parse(done: Completed) -> ClusterNames:
    """Parse the output of `Scheduler.list_names`. Never raises, whatever the output."""
    nodes: list[str] = []
    partitions: list[str] = []
    jobs: list[str] = []
    other: list[str] = []
    code = None
    for line in done.text.splitlines():
        mark, *words = line.split()[:3] or [""]
        if mark == "tk-nodes" and len(words) == 2:
            partitions.append(words[0])
            nodes += _expanded(words[1])
        elif mark == "tk-node" and words:
            nodes.append(words[0])
        elif mark == "tk-queue" and words:
            partitions += [] if words[0] in ("Queue", "Server") else words[:1]
        elif mark == "tk-job" and words:
            jobs.append(words[0])
        elif mark == "tk-code" and words:
            code = words[0]
        elif line.strip():
            other.append(" ".join(line.split()))
    last = other[-1] if other else f"exit status {code or done.exit_code}"
    problem = None if code == "0" else last
    if problem is not None:
        return ClusterNames(problem=problem)
    return ClusterNames(_plain(nodes), _plain(partitions), _plain(jobs))


def parse_pods(done: Completed) -> ClusterNames:
    """Parse an API server's list of pods. Never raises, whatever it is."""
    from tunnelkit.scheduler.kube.names import usable

    try:
        found = json.loads(done.stdout[:_MOST_BYTES]) if done.exit_code == 0 else None
    except (ValueError, RecursionError):
        found = None
    items = found.get("items") if isinstance(found, dict) else None
    if not isinstance(items, list):
        return ClusterNames(problem=done.error_text or "no list of pods")
    pods, owners = usable([one for one in items[:MAX_NAMES] if isinstance(one, dict)])
    return ClusterNames(_plain(pods), owners=_plain(owners))


def _expanded(text: str) -> Iterable[str]:
    from tunnelkit.scheduler.nodelist import expand

    try:
        return expand(text)[:MAX_NAMES]
    except SchedulerError:
        return ()


def _plain(names: Iterable[str]) -> tuple[str, ...]:
    """Return each name once; only names that need no quoting in a shell."""
    found = dict.fromkeys(name for name in names if _NAME.fullmatch(name))
    return tuple(found)[:MAX_NAMES]


def cache_file() -> Path:
    """Return the path of the cache file."""
    return cache_root() / "names.json"


def remember(
    login: str, project_dir: Path, names: ClusterNames, *, path: Path | None = None
) -> None:
    """Store a cluster's names, and that the project is on it.

    Raises nothing if the cache can't be written.
    """
    if names.problem is not None:
        return
    path = path or cache_file()
    data = _read(path)
    data["clusters"][login] = {
        "nodes": list(names.nodes),
        "partitions": list(names.partitions),
        "jobs": list(names.jobs),
        "owners": list(names.owners),
    }
    # The newest last, and at most MAX_PROJECTS: there may be many short-lived projects.
    projects = data["projects"]
    projects.pop(str(project_dir), None)
    projects[str(project_dir)] = login
    data["projects"] = dict(list(projects.items())[-MAX_PROJECTS:])
    with contextlib.suppress(OSError):
        write_private(path, json.dumps(data))


async def learn(run: Run, scheduler: Scheduler, cluster: str, project_dir: Path) -> None:
    """Ask the scheduler for the names, once, and store them under the cluster's name.

    run: runs a command where it says.
    A failure is ignored; a later call may succeed.
    """
    from tunnelkit.scheduler.base import Where

    command = scheduler.list_names()
    if command is None:
        return
    read = parse if command.where is not Where.API else parse_pods
    with contextlib.suppress(TunnelkitError):
        remember(cluster, project_dir, read(await run(command)))


def recall(kind: str, project_dir: Path | None, *, path: Path | None = None) -> list[str]:
    """Return the names of a kind (nodes, partitions, jobs, owners) on the project's cluster.

    If the project's cluster is not known, return those of all clusters.
    """
    data = _read(path or cache_file())
    login = data["projects"].get(str(project_dir))
    clusters = [data["clusters"][login]] if login in data["clusters"] else data["clusters"].values()
    found: dict[str, None] = {}
    for cluster in clusters:
        listed = cluster.get(kind) if isinstance(cluster, Mapping) else None
        if isinstance(listed, list):
            found.update((one, None) for one in listed if isinstance(one, str))
    return list(found)


def _read(path: Path) -> dict[str, dict[str, object]]:
    """Return the cache's content; empty if the file is missing or broken."""
    try:
        data = json.loads(path.read_text())
        found = {key: data[key] for key in ("clusters", "projects")}
    except (OSError, ValueError, KeyError, TypeError):
        found = {}
    if found and all(isinstance(value, dict) for value in found.values()):
        return found
    return {"clusters": {}, "projects": {}}
