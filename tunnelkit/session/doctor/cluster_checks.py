"""Checks of the login host, over one connection."""

from __future__ import annotations

import time
from dataclasses import replace

from tunnelkit.cluster_dir import TK_OWN_DIR
from tunnelkit.errors import ConnectionFailed, SchedulerError
from tunnelkit.mirror.remote.login_shell import advice
from tunnelkit.mirror.transfer.rsync import rsync_defect
from tunnelkit.scheduler.detect import DETECT, parse_detect
from tunnelkit.scheduler.factory import adapter
from tunnelkit.session.agent.find_python import CANDIDATES, DEFAULT
from tunnelkit.session.doctor import parse
from tunnelkit.session.doctor.check import Finding, fail, ok, skip, warn
from tunnelkit.session.doctor.context import CheckContext
from tunnelkit.session.runtime import completion_cache
from tunnelkit.text_format import human_bytes

_MARK = "tk-doctor-mark"
_MIN_PYTHON = (3, 8)
#: The agent needs a fraction of this, but a home this full fails soon.
_FEW_BYTES = 64 * 2**20
_TIGHT_BYTES = 2**30
_TIGHT_PART = 0.95
#: Digests, not times, decide what the mirror sends; make and similar tools use times.
_SKEW_S = 2.0

_PYTHONS = (
    f'for p in "$1" python3 {CANDIDATES}; do'
    + r"""
  command -v "$p" >/dev/null 2>&1 || continue
  "$p" -I -S -c 'import sys
print("tk-python %d.%d.%d" % sys.version_info[:3], sys.executable)' 2>/dev/null </dev/null
  [ "$p" = "$1" ] && echo tk-wanted
done
echo tk-done
"""
)
#: $1: tk's directory from the settings.
_HOME = (
    TK_OWN_DIR
    + r"""
umask 077
d=
tk_own_dir "$1" 2>&1 | sed 's/^/tk-said /'
tk_dir "$1" 2>/dev/null
case $1 in "~/"*) printf 'tk-home %s\n' "$HOME" ;; *) printf 'tk-home %s\n' "$d" ;; esac
[ -d "$d" ] && at=$d || at=$HOME
df -Pk -- "$at" 2>/dev/null | sed 's/^/tk-df /'
printf 'tk-type %s\n' "$(stat -f -c %T -- "$at" 2>/dev/null)"
t=$d/.doctor.$$
trap 'rm -f -- "$t"' EXIT
dd if=/dev/zero of="$t" bs=1024 count=256 2>&1 | sed 's/^/tk-said /'
[ "$(wc -c <"$t" 2>/dev/null)" -eq 262144 ] 2>/dev/null && [ -O "$d" ] && echo tk-written
echo tk-done
"""
)
_QUOTA = r"""
if command -v lfs >/dev/null 2>&1; then lfs quota -q -u "$(id -un)" "$HOME" 2>/dev/null; fi
if command -v quota >/dev/null 2>&1; then quota -w 2>/dev/null || :; else echo tk-none; fi
"""


async def connection(scene: CheckContext) -> Finding:
    """Check the login, by the live session's connection if there is one."""
    begin = time.monotonic()
    far = await scene.connect()
    done = await far.run(["true"], timeout_s=20.0)
    took = time.monotonic() - begin
    if done.exit_code != 0:
        return fail(f"{scene.login}: `true` ended with {done.exit_code}: {done.error_text}")
    how = "the session's connection" if far.is_session else f"connected in {took:.1f} s"
    return ok(f"{scene.login}: {how}", by_session=far.is_session)


async def multiplexing(scene: CheckContext) -> Finding:
    """Check that commands share the one connection; measure one."""
    _, first = await scene.timed(["true"])
    _, second = await scene.timed(["true"])
    fastest = min(first, second)
    text = f"commands ride on one connection, {1000 * fastest:.0f} ms each"
    if fastest > 3.0:
        return warn(f"{text}: slow", took_ms=round(1000 * fastest))
    return ok(text, took_ms=round(1000 * fastest))


async def login_shell(scene: CheckContext) -> Finding:
    """Check that the login shell prints nothing without a terminal."""
    print_it = 'printf "\n%s %s\n" "$1" "${SHELL:-}"'
    done = await scene.far.run(["sh", "-c", print_it, "tk", _MARK], timeout_s=20.0)
    if _MARK not in done.text:
        return fail(f"the login shell runs no commands: {parse.shorten(done.text, 120)!r}")
    shell = parse.tagged(done.text, _MARK).strip()
    said = parse.noise(done.text, _MARK)
    if said:
        return warn(
            f"its start files print {parse.shorten(said)!r}: that breaks rsync, so files go by tar",
            fix=advice(shell),
        )
    if done.error_text:
        complaint = parse.shorten(done.error_text, 120)
        return warn(f"its start files complain: {complaint!r}", fix=advice(shell))
    return ok("silent")


async def python(scene: CheckContext) -> Finding:
    """Check for a Python 3.8 or newer for the agent."""
    wanted = scene.settings.cluster.python
    done = await scene.script(_PYTHONS, wanted)
    found = parse.pythons(done.text)
    before, mark, _ = done.text.partition("tk-wanted")
    own = parse.pythons(before) if mark else []
    good = [one for one in found if one.version >= _MIN_PYTHON]
    if own and own[0].version >= _MIN_PYTHON:
        return ok(f"{own[0].text} ({own[0].path})", version=own[0].text, path=own[0].path)
    problem = f"{wanted} is {own[0].text}" if own else f"there is no {wanted}"
    if good and wanted == DEFAULT:
        return ok(f"{problem}: tk uses {good[0].path} ({good[0].text})", path=good[0].path)
    if good:
        best = max(good, key=lambda one: one.version)
        return fail(
            f"{problem}; {best.path} is {best.text}",
            fix=f'set [cluster] python = "{best.path}" in tunnelkit.toml',
        )
    return fail(f"{problem}, and no other Python 3.8 or newer was found")


async def rsync(scene: CheckContext) -> Finding:
    """Check the login host's rsync."""
    done = await scene.script("rsync --version 2>&1 </dev/null || :")
    defect = rsync_defect(done.text if "ersion" in done.text else "")
    if defect is not None:
        return warn(f"{defect} on {scene.login}: files go by a slower tar stream")
    first = next(line for line in done.text.splitlines() if "ersion" in line)
    return ok(parse.shorten(first))


async def home(scene: CheckContext) -> Finding:
    """Check the home there, or tk's directory: file system, free space, write access."""
    done = await scene.script(_HOME, scene.settings.cluster.directory)
    place = parse.tagged(done.text, "tk-home") or "the home"
    kind = parse.tagged(done.text, "tk-type").strip()
    space = parse.df(parse.tagged(done.text, "tk-df"))
    data: dict[str, object] = {
        "path": place,
        "kind": kind or None,
        "free_bytes": space.free_bytes if space else None,
    }
    text = f"{place}, {kind or 'file system unknown'}"
    if parse.is_network(kind):
        text += " (shared; tk keeps its locks and sockets off it)"
    if space is not None:
        text += f", {human_bytes(space.free_bytes)} of {human_bytes(space.total_bytes)} free"
    if "tk-written" not in done.text.split():
        said = parse.tagged(done.text, "tk-said").splitlines()
        why = parse.shorten(said[0], 120) if said else done.error_text or "no reason given"
        return replace(fail(f"{text}; it can't be written: {why}"), data=data)
    if space is not None and space.free_bytes < _FEW_BYTES:
        return replace(fail(f"{text}: full"), data=data)
    if space is not None and space.free_bytes < _TIGHT_BYTES:
        return replace(warn(f"{text}: little room"), data=data)
    return replace(ok(text), data=data)


async def quota(scene: CheckContext) -> Finding:
    """Check the quotas of the file servers."""
    done = await scene.script(_QUOTA)
    rows = parse.quotas(done.text)
    if not rows:
        known = "tk-none" not in done.text
        return ok("no limit given" if known else f"no quota command on {scene.login}")
    worst = max(rows, key=lambda row: row.used_part)
    used, limit = human_bytes(worst.used_bytes), human_bytes(worst.limit_bytes)
    text = f"{used} of {limit} used on {worst.filesystem}"
    if worst.used_part >= 1.0:
        return fail(f"{text}: nothing more can be written")
    if worst.used_part >= _TIGHT_PART:
        return warn(text)
    return ok(text)


async def clock(scene: CheckContext) -> Finding:
    """Check the difference of the two clocks."""
    before = time.time()
    done = await scene.script('date "+tk-date %s.%N"')
    found = parse.clock(done.text, before, time.time())
    if found is None:
        return skip(f"{scene.login} did not say its time")
    way = "ahead" if found.ahead_s > 0 else "behind"
    text = f"{scene.login} is {abs(found.ahead_s):.1f} s {way} (±{found.uncertain_s:.1f} s)"
    if found.surely_off_s > _SKEW_S:
        return warn(f"{text}: make and others that go by file times may be wrong")
    return ok(text, ahead_s=round(found.ahead_s, 3))


async def forwards(scene: CheckContext) -> Finding:
    """Check a forward end to end: read the banner of the login host's sshd."""
    done = await scene.script('printf "tk-conn %s\\n" "$SSH_CONNECTION"')
    words = parse.tagged(done.text, "tk-conn").split()
    if len(words) != 4 or not words[3].isdigit():
        return skip(f"{scene.login} does not say the port of its sshd")
    host = "127.0.0.1" if ":" in words[2] else words[2]
    why = "AllowTcpForwarding no?"
    try:
        said = await scene.far.banner(host, int(words[3]))
    except ConnectionFailed as error:
        said, why = b"", error.cause or error.message
    if said.startswith(b"SSH-"):
        return ok("allowed (checked end to end)")
    return warn(
        f"{scene.login} carries none ({parse.shorten(why)}): tk uses its own wire instead",
        allowed=False,
    )


async def scheduler(scene: CheckContext) -> Finding:
    """Check the scheduler and its version."""
    wanted = scene.settings.cluster.scheduler
    found = parse_detect(await scene.far.run(list(DETECT.argv), timeout_s=30.0))
    if wanted == "none":
        there = f" ({found.name} is there)" if found.name != "none" else ""
        return ok(f"none is used, as [cluster] scheduler says{there}", name="none")
    if found.name == "none":
        where = scene.login
        if wanted != "auto":
            return fail(f"[cluster] scheduler is {wanted!r}, but {where} has none")
        return ok(f"none on {where}: tk works on the nodes that you name", name="none")
    version = found.version or "of unknown version"
    place = f" in {found.bin_dir}" if found.bin_dir else ""
    if wanted not in ("auto", found.name):
        return fail(f"[cluster] scheduler is {wanted!r}, {scene.login} has {found.name} {version}")
    try:
        own = adapter(found.name, found, scene.login)
    except SchedulerError as error:
        return fail(f"{found.name} {version}{place}: {error.cause}", fix=error.hint)
    listing = own.list_names() if own is not None else None
    if listing is None:
        return ok(f"{found.name} {version}{place}", name=found.name, version=found.version)
    listed = completion_cache.parse(await scene.far.run(listing.argv, timeout_s=30.0))
    if listed.problem is not None:
        return warn(
            f"{found.name} {version}{place} does not answer: {parse.shorten(listed.problem, 120)}",
            fix="wait, and ask the site if it lasts; jobs that run are not affected",
        )
    # Also store the names that TAB offers.
    completion_cache.remember(scene.login, scene.project_dir, listed)
    return ok(
        f"{found.name} {version}{place}, {len(listed.nodes)} nodes",
        name=found.name,
        version=found.version,
    )
