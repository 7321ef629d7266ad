"""The script that `tk submit` sends: the user's options, tk's body, the user's script at its end.

sh finds a Python and hands over to the keeper (tunnelkit/keeper), which puts the user's script in
the place of Slurm's copy of all this, and runs it there as its child: `$0` is the same.
"""

from __future__ import annotations

import secrets
import shlex
from pathlib import Path

from tunnelkit import agent_zip
from tunnelkit.keeper.main import Settings

#: The keeper's modules, each after those that it imports.
MODULES = (
    *("script_process", "slurm_job", "pbs_job", "kept_files", "attached"),
    *("waiting", "programs"),
    "main",
)
#: The files for the script's Pythons, by their names there.
_HOOK = {"sitecustomize.py": "program_hook", "standing.py": "standing"}
#: Tried in this order, after the Python of the settings.
_PYTHONS = (
    "python3 /usr/bin/python3 /usr/local/bin/python3 python3.14 python3.13 python3.12 python3.11 "
    "python3.10 python3.9 python3.8 /usr/libexec/platform-python"
)
#: All that the keeper imports is there, and the version is new enough.
_GOOD = (
    "import sys,json,resource,select,signal,subprocess,traceback,types;"
    "sys.exit(sys.version_info<(3,8))"
)
# MARK begins each part, and is made for each submission: nothing can pretend to be one. If the
# keeper can't be loaded, the script runs without it.
_BOOT = """import os, signal, sys, types
path = os.fsencode(sys.argv[1])
data = open(path, "rb").read()
mark = b"\\n#MARK "
end = data.rindex(mark + b"environ\\n")
at = data.index(mark + b"script\\n")
script, environ = data[at + len(mark) + 7:end], data[end + len(mark) + 8:]
try:
    for part in data[data.index(mark):at].split(mark)[1:]:
        name, _, source = part.partition(b"\\n")
        module = types.ModuleType(name.decode())
        sys.modules[name.decode()] = module
        exec(compile(source, name.decode(), "exec"), module.__dict__)
except Exception as error:
    print("tk: the script runs without tk:", error, file=sys.stderr, flush=True)
    open(path, "wb").write(script)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    pairs = [one.partition(b"=") for one in environ.split(b"\\0") if one.find(b"=") > 0]
    os.execve(path, [path] + sys.argv[2:], {name: value for name, _, value in pairs})
sys.modules["tunnelkit.keeper.main"].begin(path, script, environ)
"""
# All of it is one command, so that sh has read it before "$0" changes. Without Python nothing
# stands between Slurm and the script, and nothing is kept.
_BODY = r"""
# From here on it is tk's. It runs the script at the end of this file, by its own #! line, in the
# place of this file, as a child that gets its arguments, environment, stdin and signals.
{
tk_file=$0
if ! [ -w "$tk_file" ]; then
  tk_file=$(mktemp) && cat "$0" >"$tk_file" && chmod 700 "$tk_file" || exit 1
fi
PATH=$PATH:/usr/local/bin:/usr/bin:/bin
TK_IGNORED=0 tk_python=
while read -r tk_name tk_value; do
  case $tk_name in SigIgn:) TK_IGNORED=$tk_value ;; esac
done </proc/$$/status
for tk_one in PYTHONS; do
  "$tk_one" -I -S -c 'GOOD' </dev/null >/dev/null 2>&1 && tk_python=$tk_one && break
done
tk_script=$(tail -c SIZE "$tk_file" && echo x)
if [ -n "$tk_python" ] && { printf '\n#MARK environ\n'; cat /proc/$$/environ; } >>"$tk_file"; then
  export TK_IGNORED
  exec "$tk_python" -I -S -c 'BOOT' "$tk_file" "$@"
fi
echo "NO_PYTHON" >&2
printf %s "${tk_script%x}" >"$tk_file" && exec "$tk_file" "$@"
exit 1
}
"""


def job_body(
    script: bytes, header: bytes, settings: Settings, python: str, mark: str | None = None
) -> bytes:
    """Return what is sent. header: the script's lines with options.

    python: `[cluster] python`. mark: for tests; else made here.
    """
    mark = mark or f"tk-{secrets.token_hex(8)}"
    modules = keeper_modules(settings)
    parts = [_part(mark, name, source) for name, source in modules]
    parts.append(_part(mark, "script", script))
    body = _sh(len(script), settings, python, mark).encode()
    return b"".join([b"#!/bin/sh\n", header, body, *parts])


def _sh(size: int, settings: Settings, python: str, mark: str) -> str:
    kept = ", and is not kept if it fails" if settings.keep_s else ""
    no_python = f"tk: there is no Python 3.8 or newer here: the script runs as it is{kept}"
    words = {
        "PYTHONS": f"{shlex.quote(python)} {_PYTHONS}",
        "'GOOD'": shlex.quote(_GOOD),
        "'BOOT'": shlex.quote(_BOOT),
        "#MARK ": f"#{mark} ",
        "NO_PYTHON": no_python,
        "SIZE": str(size),
    }
    text = _BODY
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def _part(mark: str, name: str, data: bytes) -> bytes:
    return f"\n#{mark} {name}\n".encode() + data


def keeper_modules(settings: Settings) -> list[tuple[str, bytes]]:
    """Return the keeper's modules in order, and the settings as the last lines of its main one."""
    package = Path(agent_zip.__file__).parent
    files = agent_zip.stripped_files(package, "keeper")
    found = [
        (f"tunnelkit.keeper.{name}", _dense(files[f"tunnelkit/keeper/{name}.py"]))
        for name in MODULES
    ]
    settings = settings._replace(hook=hook_files() if settings.stand_s else {})
    name, source = found[-1]
    values = ", ".join(f"{key}={value!a}" for key, value in settings._asdict().items())
    own = f"""
def begin(path, script, environ):
    main(path, script, environ, Settings({values}))
"""
    found[-1] = (name, source + own.encode())
    return found


def hook_files() -> dict[str, str]:
    """Return the files for the script's Pythons."""
    package = Path(agent_zip.__file__).parent
    files = agent_zip.stripped_files(package, "keeper")
    return {
        name: _dense(files[f"tunnelkit/keeper/hook/{module}.py"]).decode()
        for name, module in _HOOK.items()
    }


def _dense(source: bytes) -> bytes:
    """Return the source without its empty lines."""
    return b"\n".join(line for line in source.split(b"\n") if line.strip()) + b"\n"
