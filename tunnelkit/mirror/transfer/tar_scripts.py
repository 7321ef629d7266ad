"""Scripts that run on the login host for a tar stream: they need only sh, tar and coreutils.

Files are unpacked into a private directory inside the root, hence on its file system, and moved
from there. Before a script changes anything in a directory, it enters that directory and checks
that no symlink is on the path. It prints a dot now and then to show that it is alive."""

from __future__ import annotations

from tunnelkit.mirror.tree.ignore import REPLACED_DIR
from tunnelkit.remote_script import SETUP

#: The script's exit codes, beside those of PARTIAL.
CUT_OFF = 95
#: tar failed and nothing was moved: a full disk, or a name that can't exist there
REFUSED = 96
#: of PART: no file is there
NO_FILE = 92
_BEAT_S = 2

# `./a/b` is entered below $root. PWD is the kernel's path, including newlines.
_ENTER = (
    "enter() { case $1 in .|./.) want=$root ;; *) want=${root%/}/${1#./} ;; esac; "
    'cd -P -- "$want" 2>/dev/null && [ "$PWD" = "$want" ] || '
    '{ printf "%s: not a directory, or reached through a symlink\\n" "$want" >&2; return 1; }; }'
)

# $1: the root, $2: the backup's directory, then tar's options. The archive on stdin. xargs reads
# the items of the lists, so that names are exact in every sh.
UNPACK = rf"""
umask 077
LC_ALL=C root=$1 backup=$2
shift 2
enter='{_ENTER}'
export LC_ALL root backup enter stage
eval "$enter"
own=${{root%/}}/{REPLACED_DIR} stage= beat=
trap '[ -z "$beat" ] || kill "$beat" 2>/dev/null
  [ -z "$stage" ] || rm -rf -- "$stage"; rmdir -- "$own" 2>/dev/null' EXIT
trap 'exit 93' HUP INT TERM PIPE
enter . || exit 91
[ -d "$own" ] || mkdir -- "$own" || exit 92
enter ./{REPLACED_DIR} || exit 92
rm -rf -- "$own"/incoming.*
mkdir -- "$own/incoming.$$" || exit 92
stage=$own/incoming.$$
# A child that has not begun yet loses the signal that the trap sends: it looks for itself.
{{ cd / && while sleep {_BEAT_S} >/dev/null 2>&1 && kill -0 $$ 2>/dev/null
  do printf .; done; }} &
beat=$!
# $stage is ours alone, so that modes may be exact from the start: busybox minds the umask.
(umask 0; exec tar "$@" -x -p -o -f - -C "$stage")
[ $? -eq 0 ] || exit {REFUSED}
[ -e "$stage/end" ] || {{ echo "the stream was cut off" >&2; exit {CUT_OFF}; }}
cd -- "$stage/t" 2>/dev/null || {{ mkdir -- "$stage/t" && cd -- "$stage/t"; }} || exit 92
xargs -0 rm -f -- <../void
if [ -s ../keep ]; then xargs -0 sh -c 'eval "$enter"
for path do
  dir=${{path%/*}} name=${{path##*/}}
  [ -e "$stage/t/$path" ] || [ -L "$stage/t/$path" ] || continue
  if enter "$dir" && {{ [ -e "./$name" ] || [ -L "./$name" ]; }}; then
    mkdir -p -- "$backup/$dir" && {{ ln -- "./$name" "$backup/$dir/$name" 2>/dev/null ||
      mv -- "./$name" "$backup/$dir/$name"; }} || rm -f -- "$stage/t/$path"
  fi
done' tk <../keep; fi
# The files of one directory, for those that are there already; a new one moves as a whole.
files='find "$stage/t/$path" -mindepth 1 -maxdepth 1 ! -type d \
  -exec sh -c "exec mv -f -- \"\$@\" ." tk {{}} +'
path=.; enter . && eval "$files"
export files
xargs -0 sh -c 'eval "$enter"
for item do
  mode=${{item%% *}} path=${{item#* }}
  [ -d "$stage/t/$path" ] || continue
  dir=${{path%/*}} name=${{path##*/}}
  enter "$dir" || continue
  if [ -L "./$name" ]; then echo "$path: a symlink, which is not followed" >&2
  elif [ -d "./$name" ]; then
    [ -w "./$name" ] && [ -x "./$name" ] || chmod u+rwx "./$name"
    enter "$path" || continue
    eval "$files"
    case $mode in ?7*) chmod "$mode" . ;; esac
  elif [ -e "./$name" ]; then echo "$path: a file is in the way" >&2
  else mv -- "$stage/t/$path" "./$name"
  fi
done' tk <"$stage/dirs"
xargs -0 sh -c 'eval "$enter"
for item do
  path=${{item#* }}
  enter "${{path%/*}}" && [ ! -L "./${{path##*/}}" ] && chmod "${{item%% *}}" "./${{path##*/}}"
done' tk <"$stage/late"
# What is still here could not be moved.
[ -z "$(find "$stage/t" ! -type d | head -c 1)" ] || exit 23
exit 0
"""

#: $1: the root, then tar's options. Names on stdin, the archive on stdout, after the mark.
PACK = (
    SETUP
    + r"""
cd -P -- "$1" || exit 91
shift
exec xargs -0 tar "$@" -c -f - --
"""
)

#: $1: the root, $2: a file, $3: the first byte wanted, from 1, $4: how many. As PACK on stdout.
PART = (
    SETUP
    + rf"""
cd -P -- "$1" || exit 91
[ -f "$2" ] && [ ! -L "$2" ] || exit {NO_FILE}
tail -c "+$3" -- "$2" | head -c "$4"
"""
)

#: Per path on stdin: its name, lstat (mode, size, mtime) and a symlink's target.
LOOK = r"""
cd -- "$1" || exit 91
xargs -0 sh -c 'for path do
  facts=$(stat -c "%f %s %Y" -- "$path" 2>/dev/null) || continue
  printf "%s\0%s\0" "$path" "$facts"
  if [ -L "$path" ]; then readlink -n -- "$path"; fi
  printf "\0"
done' tk
exit 0
"""
