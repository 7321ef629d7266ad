"""tk's own directory on the cluster, `[cluster] directory`: sh code that finds it."""

from __future__ import annotations

#: `tk_dir WORD` sets d to the directory that the setting names on this host. The word is one that
#: config/value_kinds.py lets through: a name after $ is a variable's, nothing more.
TK_DIR = r"""
tk_dir() {
  case $1 in
    "~/"*) d=$HOME/${1#"~/"} ;;
    '$'*)
      d=${1%%/*} d=${d#?}
      eval "d=\${$d-}"
      [ -n "$d" ] || { echo "${1%%/*} is not set there in a command by ssh" >&2; return 1; }
      case $1 in */*) d=$d/${1#*/} ;; esac ;;
    *) d=$1 ;;
  esac
  case $d in /*) ;; *) echo "$1 is $d there, no absolute path" >&2; return 1 ;; esac
}
"""
#: `tk_own_dir WORD` also makes it, and refuses one that others own or may write: what lies there
#: is run.
TK_OWN_DIR = (
    TK_DIR
    + r"""
tk_own_dir() {
  tk_dir "$1" && mkdir -p -- "$d" || return 1
  [ -O "$d" ] || { echo "$d belongs to another user" >&2; return 1; }
  [ -z "$(find "$d/." -prune -perm -020 -o -prune -perm -002)" ] ||
    { echo "others may write to $d: chmod go-w it" >&2; return 1; }
}
"""
)
