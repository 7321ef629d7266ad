"""Several remote roots: none may be, hold or lie in another, wherever symlinks lead."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tunnelkit.errors import MirrorError
from tunnelkit.mirror.remote.root import check_remote_dir
from tunnelkit.remote_script import RemoteHost, run_script

# What is not there yet is not made: the way to it is resolved, the rest is as it is written.
# A symlink to nothing counts as well: another root may be about to make what it leads to.
_RESOLVE = r"""
for path do
  case $path in "~/"*) path=${HOME%/}/${path#"~/"} ;; esac
  rest= links=0
  while [ ! -d "$path" ]; do
    if [ -L "$path" ] && [ $((links += 1)) -le 40 ]; then
      to=$(readlink -- "$path")
      case $to in /*) path=$to ;; *) path=${path%/*}/$to ;; esac
      continue
    fi
    rest=/${path##*/}$rest
    path=${path%/*}
    [ -n "$path" ] || path=/
  done
  real=$(cd -- "$path" && pwd -P) || exit 92
  printf '%s\0' "${real%/}$rest"
done
"""


async def check_apart(remote: RemoteHost, remote_dirs: Sequence[str]) -> None:
    """Raise MirrorError if two of these directories meet on the cluster; or ConnectionFailed."""
    done = await run_script(
        remote,
        _RESOLVE,
        [check_remote_dir(one) for one in remote_dirs],
        what="the remote directories can't be looked at",
    )
    real = [os.fsdecode(item).rstrip("/") + "/" for item in done.items]
    for number, one in enumerate(real):
        for other in range(number):
            if one.startswith(real[other]) or real[other].startswith(one):
                raise MirrorError(
                    f"{remote_dirs[number]} and {remote_dirs[other]} can't both be mirrored into",
                    cause=f"on {remote.destination()} they are {one[:-1]} and {real[other][:-1]}",
                    hint="choose directories of which none lies in another: [[mirror.also]] remote",
                )
