"""The way in which a run is held to its limits: the first that works, or the one that is named."""

from __future__ import annotations

from collections.abc import Sequence

from tunnelkit.errors import MissingProgram
from tunnelkit.simulate.runners.bare import BareRunner
from tunnelkit.simulate.runners.base import LocalJob, Runner
from tunnelkit.simulate.runners.cgroup import CgroupRunner
from tunnelkit.simulate.runners.container import ContainerRunner
from tunnelkit.simulate.runners.systemd import SystemdRunner

#: In the order in which they are tried; the last one always works.
NAMES = ("docker", "podman", "systemd", "cgroup", "bare")


def runner_of(name: str) -> Runner:
    """Return the runner of that name."""
    if name in ("docker", "podman"):
        return ContainerRunner(name)
    if name == "systemd":
        return SystemdRunner()
    return CgroupRunner() if name == "cgroup" else BareRunner()


async def choose(
    job: LocalJob, wanted: str | None, names: Sequence[str] = NAMES
) -> tuple[Runner, tuple[str, ...]]:
    """Return the first that works, and why those before it do not.

    wanted: this one alone. Raises MissingProgram if it does not work."""
    if wanted is not None:
        runner = runner_of(wanted)
        if problem := await runner.problem(job):
            raise MissingProgram(
                f"{wanted} can't be used for the run", cause=problem, hint="leave out --in"
            )
        return runner, ()
    why: list[str] = []
    for name in names:
        runner = runner_of(name)
        problem = await runner.problem(job)
        if not problem:
            return runner, tuple(why)
        why.append(f"{name}: {problem}")
    raise MissingProgram(
        "nothing here can hold a run to its limits", cause="; ".join(why), hint="--in bare"
    )
