"""The file systems of a job as the login host sees them now: their room, and the user's quotas."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from tunnelkit.diagnosis.evidence.storage import QuotaView, RoomView, StorageView
from tunnelkit.scheduler.quotas import parse_quotas
from tunnelkit.scheduler.sections import Section

_DF = re.compile(r"(.*?) +([0-9]{1,18}) +([0-9]{1,18}) +([0-9]{1,18}) +([0-9]{1,3})% +(/.*)")
# $@: paths; of one that is not there the nearest that is. What is neither file nor directory
# (a fifo would keep df) is left for the directory that it is in.
_ROOMS = r"""
for path; do
  while [ "$path" ] && [ ! -d "$path" ] && [ ! -f "$path" ]; do
    case $path in */*) path=${path%/*} ;; *) path= ;; esac
  done
  [ "$path" ] || continue
  printf "tk-room %s\n" "$path"
  df -P -k -- "$path" | tail -n 1
  df -P -i -- "$path" | tail -n 1
done 2>/dev/null
:
"""
# A file server may be asked, so each has a limit. Lustre's quotas are asked for by mount.
_QUOTAS = r"""
ask() { timeout "$@" 2>/dev/null | head -c 16384; }
if command -v quota >/dev/null; then
  ask 4 quota -wv
  ask 3 quota -wvg
fi
command -v lfs >/dev/null || exit 0
for path; do
  [ -e "$path" ] && [ "$(ask 2 stat -f -c %T -- "$path")" = lustre ] || continue
  ask 3 lfs quota -u "$(id -un)" "$path"
  ask 3 lfs quota -g "$(id -gn)" "$path"
  project=$(ask 2 lfs project -d "$path" | awk '{ print $1; exit }')
  [ "${project:-0}" = 0 ] || ask 3 lfs quota -p "$project" "$path"
done
:
"""
#: sh code of a function that prints the sections `rooms` and `quotas`: see `sections`.
#: `rooms PATH...`: room; `quotas PATH...`: quotas.
SCRIPT = f"""
rooms() {{ section rooms sh -c {shlex.quote(_ROOMS)} sh "$@"; }}
quotas() {{ section quotas sh -c {shlex.quote(_QUOTAS)} sh "$@"; }}
"""
#: sh code. $tails: the ends of the logs. Sets $named to the path in its last error, and $full to
#: something if an error is of a full disk or quota.
OF_LOG = r"""
named=$(printf '%s\n' "$tails" | sed -n "s/.*\[Errno [0-9]*\][^']*'\(\/[^']*\)'.*/\1/p" | tail -n 1)
full=$(printf '%s\n' "$tails" | grep -E 'Disk quota exceeded|No space left on device' | tail -n 1)
"""


def parse_rooms(sections: Mapping[str, Section]) -> tuple[RoomView, ...]:
    """Return the file systems, in the order in which they were asked for."""
    section, found = sections.get("rooms"), []
    for part in ("" if section is None else f"\n{section.text}").split("\ntk-room ")[1:][:4]:
        path, *lines = part.split("\n")
        rows = [match for line in lines if (match := _DF.fullmatch(line.strip()))]
        if not rows:
            continue
        device, size, _, free, used, mounted_on = rows[0].groups()
        counted = rows[1] if len(rows) > 1 and int(rows[1][2]) else None
        inodes = int(counted[5]) / 100 if counted is not None else None
        inodes_free = int(counted[4]) if counted is not None else None
        sizes = int(size) << 10, int(free) << 10, int(used) / 100
        found.append(RoomView(path, mounted_on, *sizes, inodes, device, inodes_free))
    return tuple(found)


def storage_of(sections: Mapping[str, Section]) -> StorageView:
    """Return the storage of a running job."""
    return StorageView(parse_rooms(sections), quota_rows(sections))


def quota_rows(sections: Mapping[str, Section]) -> tuple[QuotaView, ...]:
    """Return the quotas that have a limit."""
    section = sections.get("quotas")
    return () if section is None else parse_quotas(section.text[:65_536])
