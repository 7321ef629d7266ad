"""The environment that a script makes for its programs: modules, conda, venv, in their order.

One bash does the steps and starts the interpreters in what they have made. Environment modules are
loaded in it; nothing of the user's is run. What lies in a mirrored directory may be a stranger's
(a clone's): no program, library, module file or .pth file of it is started or read as code.
"""

import json
import os
import re
import shlex
from typing import Dict, Iterator, List, Sequence, Tuple

from tunnelkit.script_check.bounded import output_of

#: What a script does: the kind and its words (simulate/script_steps.py has them all).
Step = Tuple[str, List[str]]
LIMIT_S = 30
_MOST_BYTES = 1 << 20
#: A variable, perhaps with a plain text in its place: bash runs nothing for it in double quotes.
_REFERENCE = re.compile(
    r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*(?::?[-+](?:[\w./:=,+@%~ -]"
    r"|\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\})*)?\})",
    re.ASCII,
)
# tk_say KIND NUMBER CODE TEXT: one answer. Both are tried, since a module may not be there for
# shells that are no login shells.
_HEAD = r"""
exec 9>&1 >/dev/null 2>&1 </dev/null
tk_readlink=$(type -P readlink) tk_timeout=$(type -P timeout) tk_unsure=
tk_say() { printf '%s\0%s\0%s\0%s\0' "$1" "$2" "$3" "${4:0:4000}" >&9; }
tk_module() {
  command -v module && return
  for tk_one in /etc/profile.d/z00_lmod.sh /etc/profile.d/lmod.sh /etc/profile.d/modules.sh \
    "${LMOD_PKG:-/nowhere}/init/bash" "${MODULESHOME:-/nowhere}/init/bash" \
    /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash; do
    [ -r "$tk_one" ] && . "$tk_one"
    command -v module && return
  done
  return 1
}
# Is it in a mirrored directory, where it really lies? Sets tk_real.
tk_is_own() {
  [ "$tk_readlink" ] || return 0
  tk_real=$("$tk_readlink" -f -- "$1") || return 1
  for tk_root in "${tk_roots[@]}"; do
    case $tk_real/ in "$tk_root"/*) return 0 ;; esac
  done
  return 1
}
# Leaves out the project's places of a list; sets tk_list, and tk_had if there was one. $2 `hide`:
# they stay in their order, where no program is found by them. A relative one may be the project's.
tk_clean() {
  local rest=$1: one hidden
  tk_list='' tk_had=''
  [ "$1" ] || return
  while [ "$rest" ]; do
    one=${rest%%:*} rest=${rest#*:} hidden=''
    case $one in
      /dev/null/*) ;;
      /*) if tk_is_own "$one"; then hidden=/dev/null/tk$one; fi ;;
      *) hidden=/dev/null/here/$one ;;
    esac
    if [ "$hidden" ]; then
      tk_had=$tk_had$one
      [ "$2" = hide ] || continue
      one=$hidden
    fi
    tk_list=$tk_list:$one
  done
  tk_list=${tk_list#:}
}
tk_path() {
  tk_clean "$PATH" hide
  PATH=$tk_list
}
# $1 the variable, $2 its value.
tk_export() {
  case $1 in
    PATH) PATH=$2; tk_path ;;
    LD_LIBRARY_PATH) tk_clean "${2//;/:}"; export LD_LIBRARY_PATH="$tk_list" ;;
    MODULEPATH) tk_clean "$2"; export MODULEPATH="$tk_list"; tk_unsure=${tk_unsure:-$tk_had} ;;
    *) export "$1=$2" ;;
  esac
}
# Looks for a program, the hidden places included; sets tk_program.
tk_find() {
  local rest=$PATH: one
  tk_program=''
  case $1 in
    */*) if [ -f "$1" ] && [ -x "$1" ]; then tk_program=$1; fi; return ;;
  esac
  while [ "$rest" ] && [ ! "$tk_program" ]; do
    one=${rest%%:*} rest=${rest#*:}
    case $one in
      /dev/null/tk/*) one=${one#/dev/null/tk} ;;
      /dev/null/here/*) one=./${one#/dev/null/here/} ;;
    esac
    if [ -f "$one/$1" ] && [ -x "$one/$1" ]; then tk_program=$one/$1; fi
  done
}
# Does a module command name a place of the project's? A module file is a program.
tk_names_own() {
  local verb=$1 one
  shift
  for one in "$@"; do
    case $verb:$one in
      use:*) tk_clean "$one"; [ ! "$tk_had" ] || return 0 ;;
      *:[/.]*) if tk_is_own "$one"; then return 0; fi ;;
    esac
  done
  return 1
}
# $1 its number, then the words of the module command. Old ones answer 0 and complain on stderr.
tk_load() {
  tk_at=$1
  shift
  if [ "$tk_unsure" ] || tk_names_own "$@"; then
    tk_unsure=1
    tk_say own "$tk_at" 0 ''
    return
  fi
  if ! tk_module; then
    tk_say module "$tk_at" 127 ''
    return
  fi
  tk_said=$( { module "$@"; } 2>&1 )
  tk_code=$?
  case $tk_said in
    *ERROR* | *[Uu]nable\ to\ locate* | *Lmod\ has\ detected*error*) tk_code=1 ;;
  esac
  module "$@"
  tk_path
  tk_say module "$tk_at" "$tk_code" "$tk_said"
  if [ "$tk_code" != 0 ] && [ "$1" != use ]; then
    tk_say avail "$tk_at" 0 "$(module -t avail "${2%%/*}" 2>&1)"
  fi
}
tk_into() {
  if [ -d "$2/bin" ]; then
    PATH=$(cd -- "$2" && pwd)/bin:$PATH
    export PATH
    tk_path
    tk_say into "$1" 0 "$2"
  else
    tk_say into "$1" 1 "$2"
  fi
}
tk_login=${PYTHONPATH-}
tk_of_login() {
  IFS=:
  set -f
  for tk_place in $tk_login; do
    case $tk_place in "$PWD" | "$PWD"/*) continue ;; /*) ;; *) continue ;; esac
    case :${PYTHONPATH-}: in *":$tk_place:"*) tk_kept=${tk_kept:+$tk_kept:}$tk_place ;; esac
  done
  printf %s "${tk_kept-}"
}
# A venv's interpreter is mostly a link to one outside: that one is started, without its `site`.
tk_python() {
  tk_at=$1
  tk_find "$2"
  shift 2
  if [ ! "$tk_program" ]; then
    tk_say python "$tk_at" 127 ''
    return
  fi
  tk_with=$tk_program tk_venv='' tk_alone=()
  if [ "$tk_unsure" ]; then
    tk_say own "$tk_at" 0 ''
    return
  elif tk_is_own "$tk_program"; then
    tk_say own "$tk_at" 0 "$tk_program"
    return
  fi
  tk_file=$tk_real tk_beside=${tk_program%/*}
  if tk_is_own "$tk_beside"; then
    case ${tk_file##*/} in
      python* | pypy*) tk_with=$tk_file ;;
      *) tk_say own "$tk_at" 0 "$tk_program"; return ;;
    esac
    for tk_one in "$tk_beside" "$tk_beside/.."; do
      if [ -e "$tk_one/pyvenv.cfg" ]; then tk_venv=$tk_one tk_alone=(-I -S); fi
    done
  fi
  # Its places come as data: a sitecustomize in them would run at its start. A site's own, which the
  # login has set, does so in every job.
  tk_said=$(
    export TK_PYTHONPATH="${PYTHONPATH-}"
    PYTHONPATH=$(tk_of_login)
    [ "$PYTHONPATH" ] || unset PYTHONPATH
    export TK_VENV="$tk_venv" TK_PROGRAM="$tk_program"
    "$tk_timeout" 15 "$tk_with" "${tk_alone[@]}" -c "$TK_IMPORTS" "$@"
  )
  tk_say python "$tk_at" "$?" "$tk_said"
}
"""


#: `python -c` has the working directory, the job's, before its own modules.
ALONE = "import sys\nsys.path[:] = [one for one in sys.path if one]\n"


def answers(
    steps: List[Step], imports: str, login: bool, mirrored: Sequence[str] = ()
) -> Dict[str, object]:
    """Return what each step found, by its number; "problem" if nothing could be asked.

    mirrored: the directories of which nothing may run, as `real_places` has them."""
    roots = " ".join(map(shlex.quote, mirrored))
    text = f"{_HEAD}tk_roots=({roots})\ntk_path\n" + "\n".join(_commands(steps))
    environ = dict(os.environ, TK_IMPORTS=ALONE + imports)
    argv = ["bash", *(["-l"] if login else []), "-c", text]
    try:
        done = output_of(argv, limit_s=LIMIT_S, most_bytes=_MOST_BYTES, environ=environ)
    except OSError as error:
        return {"problem": str(error)[:200]}
    if done.problem:
        return {"problem": done.problem}
    fields = done.data.decode("utf-8", "replace").split("\0")
    rows = [fields[at : at + 4] for at in range(0, len(fields) - 4, 4)]
    return {"rows": [_row(*one) for one in rows]}


def _row(kind: str, number: str, code: str, text: str) -> Dict[str, object]:
    found: Dict[str, object] = {"kind": kind, "step": int(number), "code": int(code), "text": text}
    if kind == "python":
        try:
            found["report"] = json.loads(text)
        except ValueError:
            pass
        else:
            found["text"] = ""
    return found


def _commands(steps: List[Step]) -> Iterator[str]:
    """Return the steps as bash commands. Each word is quoted: none can be more than a word."""
    for at, (kind, given) in enumerate(steps):
        quoted = [for_bash(word) for word in given]
        if kind == "cd":
            yield f"cd -- {quoted[0]} && tk_say cd {at} 0 '' || tk_say cd {at} 1 ''"
        elif kind == "export":
            yield f"tk_export {given[0]} {quoted[1]}"
        elif kind == "module":
            yield f"tk_load {at} {' '.join(quoted)}"
        elif kind == "venv":
            yield f"tk_into {at} {quoted[0]}"
        elif kind == "conda":
            yield f"tk_into {at} {shlex.quote(conda_place(expanded(given[0])))}"
        elif kind == "python":
            yield f'tk_python {at} {" ".join(quoted)} "$PWD"'


def real_places(mirrored: Sequence[str]) -> List[str]:
    """Return where directories really lie, as tk names them (`~`, or below the home)."""
    home = os.path.expanduser("~")
    return [os.path.realpath(os.path.join(home, os.path.expanduser(one))) for one in mirrored]


def lies_in(path: str, places: Sequence[str]) -> bool:
    """Return True for a path that really lies in one of them."""
    return any((os.path.realpath(path) + os.sep).startswith(one + os.sep) for one in places)


def for_bash(word: str) -> str:
    """Return the word for bash, which puts in the variables as they are then: a module or a step
    before it may have set them. Nothing else in the word is for bash."""
    word = os.path.expanduser(word)
    parts, at = [], 0
    for found in _REFERENCE.finditer(word):
        parts += [_quoted(word[at : found.start()]), f'"{found.group()}"']
        at = found.end()
    return "".join([*parts, _quoted(word[at:])]) or "''"


def _quoted(text: str) -> str:
    return shlex.quote(text) if text else ""


def expanded(word: str) -> str:
    """Return the word with `~` and the variables that are known here."""
    return os.path.expandvars(os.path.expanduser(word))


def conda_place(name: str) -> str:
    """Return the directory of a conda environment; the name itself if it can't be found."""
    if "/" in name:
        return name
    home = os.path.expanduser("~")
    bases = [os.environ.get("CONDA_PREFIX", ""), os.environ.get("MAMBA_ROOT_PREFIX", "")]
    own = ("miniforge3", "miniconda3", "mambaforge", "anaconda3", ".conda", "micromamba")
    bases += [f"{home}/{one}" for one in own]
    bases += ["/opt/conda", "/opt/miniconda3", "/opt/miniforge3", "/opt/anaconda3"]
    places = [f"{base}/envs/{name}" for base in bases if base]
    places += [base for base in bases if base and name == "base"]
    try:
        with open(f"{home}/.conda/environments.txt") as file:
            known = file.read(_MOST_BYTES).split("\n")
    except OSError:
        known = []
    places += [one for one in known if one.rpartition("/")[2] == name]
    return next((one for one in places if os.path.isdir(f"{one}/bin")), name)
