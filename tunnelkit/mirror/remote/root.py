"""Allowed roots: the checks before anything is written.

Refused are directories whose content surely is not all the project's: `/`, the home directory and
those above it, system directories. The remote root may be reached through the user's own symlinks
(`~/tk` often leads to a scratch file system); their target is checked. Below the root no symlink is
ever followed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.errors import MirrorError
from tunnelkit.mirror.remote.owner import (
    OWNER_FILE,
    Owner,
    OwnerRecord,
    describe_owner,
    refused,
    refused_nested,
)
from tunnelkit.mirror.tree.ignore import REPLACED_DIR
from tunnelkit.mirror.tree.name_collisions import EXACT, CaseFolding
from tunnelkit.remote_script import RemoteHost, run_script

# fmt: off
# ruff: noqa: S108
_SYSTEM = frozenset({
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt",
    "/opt", "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin",
    "/usr/lib", "/usr/local", "/usr/share", "/var", "/var/lib", "/var/log", "/var/tmp",
})
# fmt: on

_PREPARE = r"""
umask 077
home=${HOME:-}
[ -n "$home" ] && home_real=$(cd -- "$home" && pwd -P) || { echo "HOME is not set" >&2; exit 91; }
case $1 in
  "~/"*) root=${home%/}/${1#"~/"} ;;
  *) root=$1 ;;
esac
new=old
[ -d "$root" ] || { mkdir -p -- "$root" || exit 92; new=new; }
real=$(cd -- "$root" && pwd -P) || exit 92
[ -w "$real" ] || { echo "$real: not writable" >&2; exit 92; }
printf '%s\0' "$root" "$real" "$home" "$home_real" "$new"
version() { command -v "$1" >/dev/null 2>&1 || return 0
  printf '%s=%s\0' "$1" "$("$1" --version 2>&1 </dev/null | grep . | head -n 1)"; }
version rsync
version tar
printf 'shell=%s\0' "${SHELL:-}"
stat --printf= / 2>/dev/null && command -v xargs >/dev/null 2>&1 && printf 'stat\0'
# Does its file system tell names apart? Asked with files of our own, gone at once.
cd -- "$real" && probe=.tk-probe-$$ || exit 0
for old in .tk-probe-*; do  # of one that was killed in the middle of it
  number=${old#.tk-probe-} && number=${number%%[!0-9]*}
  # Not by the pid alone: a killed process may wait to be reaped, or another may have its pid.
  [ -e "$old" ] && kill -0 "$number" 2>/dev/null && [ -z "$(find "$old" -mmin +1 2>/dev/null)" ] &&
    ! grep -q '^State:[[:space:]]*[ZX]' "/proc/$number/status" 2>/dev/null || rm -f -- "$old"
done
composed=$(printf '\303\251') decomposed=$(printf 'e\314\201')
trap 'rm -f -- "$probe" "$probe$composed"' EXIT
trap 'exit 90' HUP INT PIPE TERM  # dash runs the trap of EXIT for no signal
set -C
if : 2>/dev/null >"$probe" && : 2>/dev/null >"$probe$composed"; then
  [ ! -e ".TK-PROBE-$$" ] || printf 'case\0'
  [ ! -e "$probe$decomposed" ] || printf 'unicode\0'
fi
exit 0
"""


FIND_OWNER = rf"""
beside=${{1%/*}}/.${{1##*/}}.tk-owner
if [ -e "$beside" ]; then file=$beside
elif [ -e "$1/{OWNER_FILE}" ] || [ ! -w "${{1%/*}}/" ]; then file=$1/{OWNER_FILE}
else file=$beside
fi
"""
# Another mirror's root around this one (all levels up) or in it (two levels down, to be quick).
# A record that the same laptop directory left behind does not count.
_FIND_NESTED = rf"""
nested() {{
  up=${{1%/*}}
  while [ -n "$up" ]; do
    for one in "${{up%/*}}/.${{up##*/}}.tk-owner" "$up/{OWNER_FILE}"; do
      [ -f "$one" ] && other "$one" "$up" "$2" && return
    done
    up=${{up%/*}}
  done
  found=$(find "$1" -maxdepth 2 -name '*.tk-owner' -type f ! -path "$1/{OWNER_FILE}" \
    ! -path "$1/{REPLACED_DIR}/*" 2>/dev/null | head -n 1)
  [ -n "$found" ] || return 1
  inner=${{found%/*}} name=${{found##*/}}
  [ "$name" = {OWNER_FILE} ] || {{ name=${{name#.}}; inner=$inner/${{name%.tk-owner}}; }}
  other "$found" "$inner" "$2"
}}
other() {{
  text=$(head -c 4096 -- "$1" 2>/dev/null) || text="user $(stat -c %U -- "$1")"
  case $text in *"$3"*) return 1 ;; esac
  printf 'nested\0%s\0%s\0%s\0' "$1" "$2" "$text"
}}
"""
# For its user alone: it names the laptop and a path there. Another user who is refused learns whose
# it is from the file's owner.
_CLAIM = (
    FIND_OWNER
    + _FIND_NESTED
    + r"""
nested "$1" "$3" && exit 0
umask 077
new=$file.$$ owner=
trap 'rm -f -- "$new"' EXIT
(set -C; printf '%s\n' "$2" >"$new") || exit 93
if ln -- "$new" "$file" 2>/dev/null; then state=new
elif [ ! -e "$file" ]; then mv -- "$new" "$file" || exit 93; state=new
else
  owner=$(head -c 4096 -- "$file" 2>/dev/null) || owner="user $(stat -c %U -- "$file")" || exit 93
  case $owner in *"$3"*) state=own ;; *) state=$4 ;; esac
  [ "$state" = refused ] || mv -f -- "$new" "$file" || exit 93
fi
# Once more: of two who start at once, one inside the other, both may have seen nothing.
if [ "$state" = new ] && nested "$1" "$3"; then rm -f -- "$file"; exit 0; fi
# Whoever made it may have removed it again when its own start failed, before this claim.
[ "$state" = refused ] || [ -d "$1" ] || (umask 077; mkdir -p -- "$1") || exit 93
printf '%s\0' "$state" "$file" "$owner"
"""
)
_RELEASE = 'case $(head -c 4096 -- "$1") in *"$2"*) rm -f -- "$1" ;; esac\n'
# Not what somebody else mirrors into by now; and a claim may come in this very moment.
_UNMAKE = (
    FIND_OWNER
    + r"""
[ ! -e "$file" ] && rmdir -- "$1" 2>/dev/null || exit 0
[ ! -e "$file" ] || (umask 077; mkdir -p -- "$1")
"""
)


class RootUnusable(MirrorError):
    """Error: the remote root can't be made, or can't be written."""


@dataclass(frozen=True, slots=True)
class RemoteRoot:
    """The remote root, made and checked.

    root: absolute, as the user names it.
    real: with symlinks resolved.
    fresh: it did not exist before.
    rsync, tar: the first line of their `--version`, "" if they are missing.
    folding: the names that its file system takes for equal.
    shell: the login shell's path, "" if unknown.
    noise: what the login shell printed unasked.
    """

    root: str
    real: str
    fresh: bool
    has_stat: bool
    rsync: str = ""
    tar: str = ""
    folding: CaseFolding = EXACT
    shell: str = ""
    noise: bytes = b""


def check_remote_dir(remote_dir: str) -> str:
    """Return the remote directory in one plain form, `/abs/path` or `~/path`.

    Raises MirrorError for a directory that can be refused by its name alone.
    """

    def refuse(cause: str) -> MirrorError:
        return MirrorError(
            f"the remote directory {remote_dir!r} can't be mirrored into",
            cause=cause,
            hint="name a directory of its own, like ~/tk/PROJECT, in [mirror] remote",
        )

    if not remote_dir.strip():
        raise refuse("it is empty")
    if any(not char.isprintable() for char in remote_dir):
        raise refuse("it holds a control character")
    if "$" in remote_dir:
        raise refuse("variables are not expanded")
    parts = [part for part in remote_dir.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise refuse("`..` is not allowed")
    if remote_dir.startswith("/"):
        path = "/" + "/".join(parts)
        if path in _SYSTEM:
            raise refuse("it is not the project's alone")
        return path
    if parts and parts[0].startswith("~"):
        if parts[0] != "~":
            raise refuse("another user's home is not expanded")
        del parts[0]
    if not parts:
        raise refuse("it is the home directory itself")
    return "~/" + "/".join(parts)


def check_local_dir(local_dir: str) -> Path:
    """Return the local root, absolute, symlinks resolved.

    Raises MirrorError if it is no directory, or is `/`, the home directory or above it.
    """
    path = Path(local_dir).expanduser()
    try:
        root = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise MirrorError(
            f"the local directory {local_dir} can't be mirrored",
            cause=str(error),
            hint="check the project's directory, and `local` under [[mirror.also]]",
        ) from error
    if not root.is_dir():
        raise MirrorError(
            f"the local directory {local_dir} can't be mirrored",
            cause="not a directory",
            hint="check the project's directory, and `local` under [[mirror.also]]",
        )
    home = Path(os.path.realpath(Path.home()))
    if root == Path(root.anchor) or root == home or root in home.parents:
        raise MirrorError(
            f"the local directory {root} can't be mirrored",
            cause="it is the home directory, or holds it",
            hint="run tk inside the project's own directory",
        )
    return root


async def prepare(remote: RemoteHost, remote_dir: str, *, guarded: bool = False) -> RemoteRoot:
    """Make the remote root (a new one 0700), resolve it, and refuse a dangerous one.

    guarded: also refuse one in a dot directory of the home. Raises MirrorError or ConnectionFailed.
    """
    plain = check_remote_dir(remote_dir)
    done = await run_script(
        remote,
        _PREPARE,
        [plain],
        what=f"the remote directory {remote_dir} can't be used",
        hint="name one that you can write to in [mirror] remote of tunnelkit.toml",
        error=RootUnusable,
    )
    root, real, home, home_real, new, *has = [os.fsdecode(item) for item in done.items]
    below = real.rstrip("/") + "/"
    if (
        real in _SYSTEM
        or home_real == real
        or home_real.startswith(below)
        or home.startswith(below)
    ):
        raise MirrorError(
            f"the remote directory {remote_dir} can't be mirrored into",
            cause=f"on {remote.destination()} it is {real}, which is not the project's alone",
            hint="name a directory of its own, like ~/tk/PROJECT, in [mirror] remote",
        )
    if guarded and any(
        path.startswith((f"{home.rstrip('/')}/.", f"{home_real}/.")) for path in (root, real)
    ):
        raise MirrorError(
            f"the remote directory {remote_dir} can't be mirrored into",
            cause=f"on {remote.destination()} it is {real}, in a dot directory of your home",
            hint="a project's file may not name it: choose another, or set it in a profile",
        )
    facts = dict(item.split("=", 1) for item in has if "=" in item)
    return RemoteRoot(
        root,
        real,
        fresh=new == "new",
        has_stat="stat" in has,
        rsync=facts.get("rsync", ""),
        tar=facts.get("tar", ""),
        folding=CaseFolding(case="case" in has, unicode="unicode" in has),
        shell=facts.get("shell", ""),
        noise=done.noise,
    )


async def claim(
    remote: RemoteHost, real: str, owner: Owner, *, take_over: bool = False
) -> OwnerRecord:
    """Make `owner` the owner of the remote root `real` (symlinks resolved).

    It stays so after a kill; `release` ends it. Raises MirrorError naming the present owner, unless
    `take_over`; and naming the owner of a root around or in this one.
    """
    done = await run_script(
        remote,
        _CLAIM,
        [real, owner.dump(), owner.id, "taken" if take_over else "refused"],
        what=f"can't record who mirrors into {real}",
        hint="its directory, or the one above it, must be yours to write",
        error=RootUnusable,
    )
    state, file, *more = [os.fsdecode(item) for item in done.items]
    if state == "nested":
        raise refused_nested(remote.destination(), real, file, *more)
    (text,) = more
    if state == "refused":
        raise refused(remote.destination(), real, text)
    return OwnerRecord(file, owner, describe_owner(text) if state == "taken" else None)


async def unmake(remote: RemoteHost, real: str, *, timeout_s: float) -> None:
    """Remove a remote root that was just made, if it is still empty and has no owner.

    real: symlinks resolved. Raises TunnelkitError.
    """
    await run_script(remote, _UNMAKE, [real], what=f"can't remove {real}", timeout_s=timeout_s)


async def release(remote: RemoteHost, held: OwnerRecord, *, timeout_s: float) -> None:
    """Give the remote root back, if it still is the owner's. Raises TunnelkitError."""
    await run_script(
        remote,
        _RELEASE,
        [held.file, held.owner.id],
        what=f"can't remove {held.file}",
        timeout_s=timeout_s,
    )
