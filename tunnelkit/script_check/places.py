"""Directories, interpreter, programs, file systems and quota of a script, as the login host sees
them. Nothing is written."""

import os
import shutil
from typing import Dict, List

from tunnelkit.script_check.bounded import output_of
from tunnelkit.script_check.environment import expanded

_QUOTA_S = 8


def working_directory(wanted: str, chdir: str) -> Dict[str, object]:
    """Return the directory of the submission (the home if `wanted` is not there) and of the job."""
    home = os.path.expanduser("~")
    base = os.path.join(home, os.path.expanduser(wanted)) if wanted else home
    mirrored = os.path.isdir(base)
    base = base if mirrored else home
    # sbatch takes it as it is written: its shell has expanded a command line's.
    place = os.path.join(base, expanded(chdir)) if chdir else base
    return {"base": base, "path": place, "mirrored": mirrored, "is": kind_of(place)}


def kind_of(path: str) -> str:
    """Return `ok`, `missing`, `no-directory` or `closed` (may not be written) for a directory."""
    if not os.path.lexists(path):
        return "missing"
    if not os.path.isdir(path):
        return "no-directory"
    return "ok" if os.access(path, os.W_OK | os.X_OK) else "closed"


def output(path: str, job: str) -> Dict[str, object]:
    """Return the state of an output file's directory. job: the job's working directory."""
    whole = os.path.join(job, path)
    directory = os.path.dirname(whole)
    state = kind_of(directory)
    if state in ("ok", "closed") and os.path.lexists(whole):
        state = "ok" if os.path.isfile(whole) and os.access(whole, os.W_OK) else state
        state = "is-directory" if os.path.isdir(whole) else state
    return {"path": path, "directory": directory, "is": state}


def program(path: str, job: str) -> Dict[str, object]:
    """Return whether a program that a script names by its path can be started."""
    whole = os.path.join(job, expanded(path))
    if not os.path.exists(whole):
        state = "missing"
    elif os.path.isdir(whole):
        state = "is-directory"
    else:
        state = "ok" if os.access(whole, os.X_OK) else "not-executable"
    return {"path": path, "is": state}


def interpreter(words: List[str]) -> Dict[str, object]:
    """Return the state of a `#!` line's program; of `/usr/bin/env X` also that of X."""
    found = program(words[0], "/")
    named = next((one for one in words[1:] if not one.startswith("-") and "=" not in one), "")
    if found["is"] == "ok" and os.path.basename(words[0]) == "env" and named:
        state = "ok" if shutil.which(named) else "missing"
        return {"path": named, "is": state}
    return found


def rooms(paths: List[str]) -> List[Dict[str, object]]:
    """Return how full the file systems are, each once."""
    found: List[Dict[str, object]] = []
    seen = set()
    for path in paths:
        try:
            state, device = os.statvfs(path), os.stat(path).st_dev
        except OSError:
            continue
        if device in seen or not state.f_blocks:
            continue
        seen.add(device)
        # As df counts it: what is reserved for root is neither used nor free.
        used = state.f_blocks - state.f_bfree
        row: Dict[str, object] = {"path": path, "used": used / max(1, used + state.f_bavail)}
        row["free_bytes"] = state.f_bavail * state.f_frsize
        row["inodes"] = 1 - state.f_favail / state.f_files if state.f_files else None
        found.append(row)
    return found


def quota() -> Dict[str, object]:
    """Return what `quota` prints; nothing where there is none."""
    if not shutil.which("quota"):
        return {"text": "", "problem": "no quota command"}
    try:
        done = output_of(["quota", "-w", "-p"], limit_s=_QUOTA_S, most_bytes=20000)
    except OSError as error:
        return {"text": "", "problem": str(error)[:200]}
    text = "" if done.problem else done.data.decode("utf-8", "replace")
    return {"text": text, "problem": done.problem}
