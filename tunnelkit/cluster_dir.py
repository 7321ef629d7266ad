"""Shell code that finds tk's directory on the cluster (`[cluster] directory`)."""

from __future__ import annotations

#: `tk_dir WORD` sets d to the setting's directory on this host. config/value_kinds.py has checked
#: WORD: after a $ there is a variable name and nothing more, so eval is safe.
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
#: `tk_own_dir WORD` also creates the directory. It refuses one that another user owns or may write
#: to, because tk runs files from it.
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
