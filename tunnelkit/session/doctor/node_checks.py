"""Checks of the compute node; they need a session with an allocation."""

from __future__ import annotations

from tunnelkit.errors import ConnectionFailed
from tunnelkit.session.doctor import parse
from tunnelkit.session.doctor.check import Finding, ok, skip, warn
from tunnelkit.session.doctor.context import CheckContext

_NO_ALLOCATION = "no allocation: tk up, then tk doctor again"
_FIRST_PYTHON = 'p=$(command -v python || command -v python3) || exit 127; exec "$p" -c "$1"'
# `python -c` has its working directory, the project's, before its own modules: a check runs nothing
# of a project.
_ASK = """import sys
sys.path[:] = [one for one in sys.path if one]
print("tk-python %d.%d.%d" % sys.version_info[:3], sys.executable)
import debugpy
print("tk-debugpy", debugpy.__version__)
"""


async def node_ssh(scene: CheckContext) -> Finding:
    """Check that the node accepts ssh."""
    status = scene.ready
    if status is None:
        return skip(_NO_ALLOCATION)
    nodes = status["job"]["nodes"] if status["job"] else []
    node = nodes[0] if nodes else status["wanted_node"]
    if node is None:
        return skip("the login host is the node")
    if scene.settings.cluster.node_ssh == "no":
        return skip(f"not tried: [cluster] node_ssh is no, {node} is entered by the scheduler")
    entered = f"entered by {status['route'] or 'ssh'}"
    try:
        done = await scene.far.run(["true"], on_node=True, timeout_s=15.0)
    except ConnectionFailed as error:
        return warn(f"{node} refuses it ({error.cause or error.message}); {entered}")
    if done.exit_code != 0:
        return warn(f"{node}: `true` ended with {done.exit_code}; {entered}")
    return ok(f"{node} allows it; {entered}")


async def debugpy(scene: CheckContext) -> Finding:
    """Check the debugpy of the debuggee's interpreter."""
    if scene.ready is None:
        return skip(_NO_ALLOCATION)
    done = await scene.far.in_job(
        ["sh", "-c", _FIRST_PYTHON, "sh", _ASK], cwd=str(scene.project_dir)
    )
    if done is None:
        return skip(_NO_ALLOCATION)
    found = parse.pythons(done.text)
    if not found:
        return warn(
            "no Python in the job: "
            + (parse.shorten(done.error_text) or "neither python nor python3 is on its PATH"),
            fix="load one in [cluster] prologue, or name it: tk loop /path/to/python FILE",
        )
    here = f"Python {found[0].text} ({found[0].path})"
    version = parse.tagged(done.text, "tk-debugpy").strip()
    if not version:
        return ok(f"{here} has none: tk lends its own", python=found[0].path, debugpy=None)
    if _is_old(version):
        return warn(f"{here} has debugpy {version}", python=found[0].path, debugpy=version)
    return ok(f"{here} has debugpy {version}", python=found[0].path, debugpy=version)


def _is_old(version: str) -> bool:
    """True if older than the versions that tk is tested with (pyproject.toml)."""
    parts = [int(part) for part in version.split(".")[:3] if part.isdigit()]
    return bool(parts) and parts < [1, 8, 6][: len(parts)]
