"""The files of a kept job in tk's directory: its state, and what `tk keep` asks of it."""

import json
import os
import shutil
import time
from typing import Dict, List, Mapping, Optional, Union

Value = Union[str, int, float, bool, None]
#: Longest file that is read.
_MOST_BYTES = 4096
#: Most programs at an exception that the keeper reports.
MOST_STANDING = 8
#: A program touches its file every 30 s; one that has not for so long is gone.
_SILENT_S = 240.0
#: Of a process at its exception; see hook/standing.py.
_NAME = "tk-stands"


class KeptFiles:
    """`JOB.json`: the state. `JOB.wish`: a request, which has a number. Both 0600."""

    def __init__(self, directory: str, job_id: str) -> None:
        self._base = os.path.join(directory, job_id)
        self._directory = directory
        self._place = ""

    def write(self, state: Mapping[str, object]) -> bool:
        """Write the state in one step; False if that fails."""
        draft = self._base + ".new"
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump(state, file)
            os.replace(draft, self._base + ".json")
        except OSError:
            return False
        return True

    def wish(self) -> Dict[str, object]:
        """Return what `tk keep` asks; {} if nothing, or nothing that can be read."""
        return self._read(".wish")

    def _read(self, end: str) -> Dict[str, object]:
        try:
            with open(self._base + end, "rb") as file:
                found = json.loads(file.read(_MOST_BYTES).decode("utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def take_place(self, group: str, most: int) -> Optional[bool]:
        """Take one of the places for elements of a job array; None if that can't be done.

        False: all are taken. A place stays taken after its job has ended, unless it is given back.
        """
        for number in range(most):
            name = os.path.join(self._directory, f"array-{group}.{number}")
            try:
                os.makedirs(self._directory, mode=0o700, exist_ok=True)
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                self._place = name
                return True
            except FileExistsError:
                continue
            except OSError:
                return None
        return False

    def give_place_back(self) -> None:
        """Leave the place that was taken, if one was, to another element of the array."""
        place, self._place = self._place, ""
        try:
            if place:
                os.unlink(place)
        except OSError:
            pass

    def remove_earlier(self, cluster: str) -> None:
        """Remove the files of an earlier run of the same job, which was requeued.

        Another cluster's job may have the same number: its files stay."""
        if self._read(".json").get("cluster", cluster) == cluster:
            self.remove()

    def remove(self) -> None:
        """Remove the job's files."""
        for end in (".json", ".wish", ".new"):
            try:
                os.unlink(self._base + end)
            except OSError:
                pass

    def standing(self) -> "StandingFiles":
        """Return the files of the job's programs that stand at an exception."""
        return StandingFiles(self._base + ".at")


class StandingFiles:
    """`JOB.at`: the hook for the script's Pythons, and what they and the keeper tell one another.

    Each program at its exception has a file HOST.PID.json there; `answer.json` is for all of them.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        #: By a file's name: its time, and when that was seen.
        self._beats: Dict[str, List[float]] = {}

    def put(self, files: Mapping[str, str]) -> bool:
        """Make the directory with the hook; False if that fails.

        Nothing stays of an earlier run of the same job, which was requeued."""
        self.remove()
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            for name, text in files.items():
                path = os.path.join(self.directory, name)
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(descriptor, "w") as file:
                    file.write(text)
        except OSError:
            return False
        return True

    def answer(self, **answer: Value) -> None:
        """Tell all programs that stand here, and those that will."""
        draft = os.path.join(self.directory, "answer.new")
        try:
            with open(draft, "w") as file:
                json.dump(answer, file)
            os.replace(draft, os.path.join(self.directory, "answer.json"))
        except OSError:
            pass  # they end by themselves at the last answer's time

    def look(self) -> List[Dict[str, Value]]:
        """Return the programs that stand at an exception now, the first one first."""
        found = []
        try:
            names = sorted(os.listdir(self.directory))
        except OSError:
            return []
        for name in names:
            if name.endswith(".json") and name != "answer.json":
                one = self._read(name)
                if one is not None:
                    found.append(one)
        return sorted(found, key=lambda one: float(one["since_s"] or 0))[:MOST_STANDING]

    def remove(self) -> None:
        """Remove them all: who still stands here goes on."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _read(self, name: str) -> Optional[Dict[str, Value]]:
        path = os.path.join(self.directory, name)
        try:
            with open(path, "rb") as file:
                found = json.loads(file.read(_MOST_BYTES).decode("utf-8"))
            beat = os.stat(path).st_mtime
        except (OSError, ValueError):
            return None
        if not isinstance(found, dict) or not isinstance(found.get("since_s"), (int, float)):
            return None
        seen = self._beats.setdefault(name, [beat, time.monotonic()])
        if seen[0] != beat:
            seen[:] = [beat, time.monotonic()]
        is_silent = time.monotonic() - seen[1] > _SILENT_S
        if is_silent or (_is_here(found) and not _stands(found)):
            return None
        return found


def _is_here(one: Mapping[str, Value]) -> bool:
    """Return True for a process of this node, and of no container with process ids of its own."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return (one.get("host"), one.get("pid_space")) == (os.uname().nodename, space)


def _stands(one: Mapping[str, Value]) -> bool:
    """Return True if a process of this node stands at its exception."""
    try:
        with open(f"/proc/{one.get('pid')}/comm") as file:
            return file.read().strip() == _NAME
    except OSError:
        return False
