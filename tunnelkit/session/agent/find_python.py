"""Shell code that finds a Python for the agent if the cluster's `python3` is missing or too old."""

from __future__ import annotations

from collections.abc import Sequence

from tunnelkit.messages.agent_calls import AgentInfo
from tunnelkit.model import job_words

#: With this setting tk also tries other names. A Python that the user has set is used as it is.
DEFAULT = "python3"
#: Newest first. On RHEL 8 python3 is 3.6, and newer ones are installed beside it.
CANDIDATES = (
    "python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 "
    "/usr/bin/python3 /usr/local/bin/python3 /usr/libexec/platform-python python "
    '"$CONDA_PREFIX/bin/python" "$HOME"/miniforge3/bin/python "$HOME"/miniconda3/bin/python '
    '"$HOME"/mambaforge/bin/python "$HOME"/anaconda3/bin/python /opt/conda/bin/python'
)
# The target of a symlink names the version, so Python need not be started. A wrapper script
# (pyenv's) takes 0.2 s to start, so the Python behind it is used if it runs without the script.
# A module may set more than the PATH, so it is loaded in the same shell that starts Python.
FIND = f"""
tk_good() {{
  case $(readlink -f "$(command -v "$1")" 2>/dev/null) in
    */python3.[89] | */python3.[1-9][0-9]) python=$1; return ;;
  esac
  tk_real=$("$1" -I -S -c 'import sys
sys.version_info < (3, 8) and sys.exit(1)
print(sys.executable)' </dev/null 2>/dev/null) || return
  python=$1
  if "$tk_real" -I -S -c '' </dev/null >/dev/null 2>&1; then python=$tk_real; fi
}}
tk_python() {{
  python=$1
  [ "$1" = {DEFAULT} ] || return 0
  tk_good "$1" && return
  for tk_one in {CANDIDATES}; do tk_good "$tk_one" && return; done
  for tk_one in /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh \\
    /usr/share/lmod/lmod/init/profile /usr/share/modules/init/sh; do
    command -v module >/dev/null 2>&1 && break
    [ ! -r "$tk_one" ] || . "$tk_one"
  done >/dev/null 2>&1
  if command -v module >/dev/null 2>&1; then
    for tk_one in python python3 Python; do
      module load "$tk_one" >/dev/null 2>&1 && tk_good python3 && return
    done
  fi
  python=$1
  return 1
}}
"""
# $1 python, $2 the agent, then its arguments.
_RUN = (
    FIND
    + """
tk_python "$1" || {
  echo "no Python 3.8 or newer on $(uname -n): set [cluster] python to one that is there" >&2
  exit 127
}
shift
exec "$python" -I -S "$@"
"""
)
# The same, for a program that does without the prologue, which may bring the Python of the setting.
_RUN_OUTSIDE = (
    FIND
    + f"""
tk_good "$1" || tk_python {DEFAULT} || exit 127
shift
exec "$python" -I -S "$@"
"""
)


def running(python: str, agent: str, words: Sequence[str]) -> list[str]:
    """Return the argv that runs the agent with `python`, or (default setting) with a found one."""
    if python != DEFAULT:
        return [python, "-I", "-S", agent, *words]
    return ["sh", "-c", _RUN, "sh", python, agent, *words]


def running_outside(python: str, program: str, words: Sequence[str]) -> list[str]:
    """Return the argv that runs a program without [cluster] prologue, with `python` if it is there
    without it, else with another one."""
    return ["sh", "-c", _RUN_OUTSIDE, "sh", python, program, *words]


def other_than(wanted: str, executable: str, version: str) -> str:
    """Return the Python found in place of the setting's, with its version; "" if it is the same."""
    if wanted != DEFAULT or executable.rpartition("/")[2] == wanted:
        return ""
    return f"{executable} ({version})"


def introduced(info: AgentInfo, job_id: str | None, wanted: str) -> str:
    """Return the message about a new agent: job, node, pid, and its Python if not `wanted`."""
    job = f"{job_words(job_id)}, " if job_id else ""
    other = other_than(wanted, info["executable"], info["python"])
    return f"agent: {job}{info['node']}, pid {info['pid']}" + (f", by {other}" if other else "")
