"""The agent's zip on the cluster: sent only when the digest is not there yet."""

from __future__ import annotations

from dataclasses import dataclass

from tunnelkit import payload
from tunnelkit.errors import AllocationError
from tunnelkit.link.base import Link

_MIN_PYTHON = (3, 8)

#: $1 python, $2 file name. Answers: home, python version or "none", have or need.
_PROBE = r"""
set -e
d="$HOME/.cache/tunnelkit"
(umask 077; mkdir -p "$d/jobs")
printf '%s\n' "$HOME"
"$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo none
if [ -f "$d/$2" ]; then echo have; else echo need; fi
"""
#: $1 file name, $2 python; stdin: the zip. Old payloads go once nothing was started from them for
#: 30 days. A full home is left no fuller. Nobody waits for the byte code.
_STORE = r"""
set -e
d="$HOME/.cache/tunnelkit"
umask 077
trap 'rm -f "$d/.$1.$$"' EXIT
cat > "$d/.$1.$$"
mv -f "$d/.$1.$$" "$d/$1"
find "$d" -maxdepth 1 \( -name 'agent-*.zip' -o -name '.agent-*' \) ! -name "$1" -mtime +30 \
  -exec rm -f {} + 2>/dev/null || :
("$2" -I -S "$d/$1" compile </dev/null >/dev/null 2>&1 &)
"""
#: $1 python, $2 file name, then the agent's words. Starts it as soon as it is there: whoever
#: waits for it need not wait for the answer of the two above. Ends with the connection.
_START = r"""
agent="$HOME/.cache/tunnelkit/$2" python=$1 looks=0
shift 2
until [ -f "$agent" ]; do
  looks=$((looks + 1))
  [ -d "/proc/$PPID" ] || kill -0 "$PPID" 2>/dev/null || exit 66
  [ "$looks" -le 100 ] || { echo "$agent did not come" >&2; exit 66; }
  sleep 0.1
done
exec "$python" -I -S "$agent" "$@"
"""


@dataclass(frozen=True)
class Installed:
    """What was found on the cluster. Paths are absolute there."""

    home: str
    agent: str
    jobs_dir: str
    python: str

    @property
    def base(self) -> str:
        """tk's own directory on the cluster."""
        return f"{self.home}/.cache/tunnelkit"

    def argv(self, *words: str) -> list[str]:
        """argv that runs the agent, cut off from the person's own Python settings."""
        return [self.python, "-I", "-S", self.agent, *words]


async def install(link: Link, python: str, *, node: str | None = None) -> Installed:
    """Make sure that the agent is on the login host (or `node`) and can run there.

    Raises AllocationError if the home can't be written or Python is too old.
    """
    package = payload.build()
    where = node or str(link.login)
    done = await link.run(["sh", "-c", _PROBE, "sh", python, package.file_name], node=node)
    lines = done.text.splitlines()
    if done.exit_code != 0 or len(lines) < 3:
        raise AllocationError(
            f"can't prepare ~/.cache/tunnelkit on {where}",
            cause=done.error_text.splitlines()[-1] if done.error_text else f"said {done.text!r}",
            hint="is the home there full or read-only? `tk doctor` tells",
        )
    # A chatty login shell may print before us; our three lines are the last.
    home, version, have = lines[-3:]
    _check_python(python, version, where)
    if have == "need":
        stored = await link.run(
            ["sh", "-c", _STORE, "sh", package.file_name, python], stdin=package.data, node=node
        )
        if stored.exit_code != 0:
            raise AllocationError(
                f"can't store the agent in ~/.cache/tunnelkit on {where}",
                cause=stored.error_text or None,
                hint="is the home there full or read-only? `tk doctor` tells",
            )
    base = f"{home}/.cache/tunnelkit"
    return Installed(home, f"{base}/{package.file_name}", f"{base}/jobs", python)


def starting(python: str, *words: str) -> list[str]:
    """argv that runs the agent on the login host while `install` may still be putting it there."""
    return ["sh", "-c", _START, "sh", python, payload.build().file_name, *words]


def _check_python(python: str, version: str, where: str) -> None:
    try:
        found = tuple(int(part) for part in version.split("."))
    except ValueError:
        found = ()
    if found >= _MIN_PYTHON:
        return
    raise AllocationError(
        f"no Python 3.8 or newer as {python!r} on {where}",
        cause=f"found version {version}" if found else "not found",
        hint="set [cluster] python in tunnelkit.toml to one that is",
    )
