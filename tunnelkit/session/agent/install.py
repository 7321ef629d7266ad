"""Installation of the agent's zip on the cluster; sends it if it is missing or damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tunnelkit import agent_zip, probe_zip
from tunnelkit.agent_zip import Payload
from tunnelkit.cluster_dir import TK_DIR, TK_OWN_DIR
from tunnelkit.config.schema import ClusterSettings
from tunnelkit.errors import AllocationError
from tunnelkit.link.base import Link
from tunnelkit.session.agent.find_python import FIND, other_than, running, running_outside

_MIN_PYTHON = (3, 8)
_NO_ROOM = (
    "if that is full or read-only, set [cluster] directory to another place that the nodes see, "
    "as $SCRATCH/.tunnelkit; `tk doctor` checks it"
)

#: A zip that no agent has used for this long is removed.
_UNUSED_DAYS = 60

#: True if the zip is there with the size and digest sent: a crash, a full quota or a disk may have
#: truncated it. $1 python, $2 path, $3 size, $4 sha256. Without sha256sum and shasum Python reads
#: it.
_WHOLE = r"""
whole() {
  [ -f "$2" ] && [ "$(wc -c <"$2")" -eq "$3" ] || return 1
  sum=$(sha256sum <"$2" || shasum -a 256 <"$2" || "$1" -I -S -c 'import hashlib, sys
print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())' <"$2") || return 1
  case $sum in *"$4"*) ;; *) return 1 ;; esac
} 2>/dev/null
"""
#: $1 python, $2 tk's directory, then for each zip its name, size and sha256, the agent's first.
#: Prints: home, tk's directory as found, the Python's version or "none", its path, and for each zip
#: "have" or "need", in one line. The lease marks the agent's as in use (agent/zip_lease.py).
_PROBE = (
    _WHOLE
    + FIND
    + TK_OWN_DIR
    + r"""
set -e
umask 077
tk_own_dir "$2"
mkdir -p "$d/jobs"
printf '%s\n' "$HOME" "$d"
tk_python "$1" || :
version=$("$python" -c 'import sys
print("%d.%d %s" % (sys.version_info[:2] + (sys.implementation.cache_tag,)))' 2>/dev/null) ||
  version=none
printf '%s\n' "${version%% *}"
command -v "$python" || printf 'none\n'
shift 2
found=
for one in agent other; do
  [ "$#" -ge 3 ] || break
  if whole "$python" "$d/$1" "$2" "$3"; then
    if [ "$one" = agent ]; then
      touch "$d/${1%.zip}.lease" 2>/dev/null || :
      [ -e "$d/${1%.zip}-${version#* }.zip" ] ||
        ("$python" -I -S "$d/$1" compile </dev/null >/dev/null 2>&1 &)
    fi
    found="$found have"
  else
    found="$found need"
  fi
  shift 3
done
echo $found
"""
)
#: $1 python, $2 days, $3 tk's directory as found, then for each zip its name, size and sha256;
#: stdin: the zips, one after the other. Each gets its name only after fsync. Other zips of the
#: agent are removed once their lease is $2 days old. A probe renews its own file's time. A zip of
#: an older tk, which writes no leases, gets one now. After a failure (home full) the partial file
#: is removed. The byte code is compiled in the background.
_STORE = (
    _WHOLE
    + FIND
    + r"""
set -e
days=$2 d=$3 agent=
umask 077
tk_python "$1" || :
shift 3
partial=
trap 'rm -f "$partial"' EXIT
while [ "$#" -ge 3 ]; do
  partial=$d/.$1.$$
  "$python" -I -S -c 'import os, sys
left = int(sys.argv[2])
try:
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    while left:
        data = os.read(0, min(left, 65536))
        if not data: break
        left -= len(data)
        while data: data = data[os.write(file, data):]
    os.fsync(file)
except OSError as error: sys.exit(str(error))' "$partial" "$2"
  whole "$python" "$partial" "$2" "$3" || { echo "not all of it arrived on the disk" >&2; exit 1; }
  mv -f "$partial" "$d/$1"
  case $1 in agent-*) agent=$1; touch "$d/${1%.zip}.lease" 2>/dev/null || : ;; esac
  shift 3
done
(
  cd "$d" || exit
  for zip in agent-*.zip; do
    lease=$(printf %.38s "$zip").lease
    [ -e "$lease" ] || touch "$lease"
  done
  find . -maxdepth 1 -name 'agent-*.lease' -mtime "+$days" | while read -r lease; do
    rm -f "${lease%.lease}.zip" "${lease%.lease}"-*.zip "$lease"
  done
  find . -maxdepth 1 -name 'probe-*.zip' -mtime "+$days" -exec rm -f {} +
  find . -maxdepth 1 \( -name '.agent-*' -o -name '.probe-*' \) -mtime +1 -exec rm -f {} +
) 2>/dev/null || :
[ -z "$agent" ] || ("$python" -I -S "$d/$agent" compile </dev/null >/dev/null 2>&1 &)
"""
)
#: $1 python, $2 file name, $3 size, $4 sha256, $5 tk's directory, $6 attempts, then the agent's
#: arguments.
#: Starts the agent as soon as the zip is whole; the session does not wait for the answers of
#: _PROBE and _STORE first. Ends with the connection.
_START = (
    _WHOLE
    + FIND
    + TK_DIR
    + r"""
tk_python "$1" || :
tk_dir "$5" || exit 66
agent=$d/$2 size=$3 sum=$4 most=$6 looks=0
shift 6
until whole "$python" "$agent" "$size" "$sum"; do
  looks=$((looks + 1))
  [ -d "/proc/$PPID" ] || kill -0 "$PPID" 2>/dev/null || exit 66
  [ "$looks" -le "$most" ] || { echo "$agent did not come" >&2; exit 66; }
  sleep 0.1
done
exec "$python" -I -S "$agent" "$@"
"""
)


@dataclass(frozen=True)
class Installed:
    """Paths of an installed agent; all are absolute paths on the cluster.

    base: tk's own directory.
    python: the Python as named in the settings.
    other_python: the Python used in place of that, with its version; "" if there was no need.
    probe: the probe's zip; "" if it was not asked for.
    """

    home: str
    base: str
    agent: str
    python: str
    other_python: str = ""
    probe: str = ""

    @property
    def jobs_dir(self) -> str:
        """The directory of the jobs' logs, status files and secrets."""
        return f"{self.base}/jobs"

    def argv(self, *words: str) -> list[str]:
        """Return the argv that runs the agent, isolated from the user's Python settings."""
        return running(self.python, self.agent, words)

    def probe_argv(self, *words: str) -> list[str]:
        """Return the argv that runs the probe, by the agent's Python or another that is there."""
        return running_outside(self.python, self.probe, words)


async def pack() -> None:
    """Build the zips in a thread, for `install` to find them built: 0.1 s of computing that may
    pass while the link is made."""
    await asyncio.to_thread(lambda: (agent_zip.build(), probe_zip.build()))


async def install(
    link: Link, cluster: ClusterSettings, *, node: str | None = None, probe: bool = False
) -> Installed:
    """Install the agent on the login host (or `node`) unless it is there; check its Python.

    probe: the probe's zip, too. Both need one command, or two if one of them is missing.
    Raises AllocationError if tk's directory can't be written, or if Python is missing or too old.
    """
    python = cluster.python
    packages = [agent_zip.build(), *([probe_zip.build()] if probe else [])]
    where = node or link.name
    words = [python, cluster.directory, *_proofs(packages)]
    done = await link.run(["sh", "-c", _PROBE, "sh", *words], node=node)
    lines = done.text.splitlines()
    if done.exit_code != 0 or len(lines) < 5:
        raise AllocationError(
            f"can't prepare {cluster.directory} on {where}",
            cause=done.error_text.splitlines()[-1] if done.error_text else f"said {done.text!r}",
            hint=_NO_ROOM,
        )
    # A login shell may print text first; the answers are the last five lines.
    home, base, version, path, have = lines[-5:]
    _check_python(python, version, where)
    answers = zip(packages, have.split(), strict=False)
    needed = [package for package, answer in answers if answer == "need"]
    if needed:
        stored = await link.run(
            ["sh", "-c", _STORE, "sh", python, str(_UNUSED_DAYS), base, *_proofs(needed)],
            stdin=b"".join(package.data for package in needed),
            node=node,
        )
        if stored.exit_code != 0:
            raise AllocationError(
                f"can't store the {needed[0].kind} in {cluster.directory} on {where}",
                cause=stored.error_text or None,
                hint=_NO_ROOM,
            )
    other = other_than(python, path, version)
    agent, *others = (f"{base}/{package.file_name}" for package in packages)
    return Installed(home, base, agent, python, other, "".join(others))


def _proofs(packages: Sequence[Payload]) -> list[str]:
    """Return each zip's name, size and sha256."""
    found: list[str] = []
    for package in packages:
        found += [package.file_name, str(len(package.data)), package.digest]
    return found


def starting(cluster: ClusterSettings, *words: str, wait_s: int = 10) -> list[str]:
    """Return the argv that waits at most `wait_s` for the end of `install` on its host, then runs
    the agent with `words`."""
    package = agent_zip.build()
    proof = [str(len(package.data)), package.digest]
    given = [cluster.python, package.file_name, *proof, cluster.directory, str(10 * wait_s)]
    return ["sh", "-c", _START, "sh", *given, *words]


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
        hint="set [cluster] python in tunnelkit.toml to one that is; `tk doctor` looks for one",
    )
