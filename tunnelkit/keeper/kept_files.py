"""The files of a kept job in tk's directory: its state, and what `tk keep` asks of it."""

import json
import os
from typing import Dict, Optional, Union

Value = Union[str, int, float, bool, None]
#: Longest file that is read.
_MOST_BYTES = 4096


class KeptFiles:
    """`JOB.json`: the state. `JOB.wish`: a request, which has a number. Both 0600."""

    def __init__(self, directory: str, job_id: str) -> None:
        self._base = os.path.join(directory, job_id)
        self._directory = directory

    def write(self, state: Dict[str, Value]) -> bool:
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
        try:
            with open(self._base + ".wish", "rb") as file:
                found = json.loads(file.read(_MOST_BYTES).decode("utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def take_place(self, group: str, most: int) -> Optional[bool]:
        """Take one of the places for elements of a job array; None if that can't be done.

        False: all are taken. A place stays taken after its job has ended.
        """
        for number in range(most):
            name = os.path.join(self._directory, f"array-{group}.{number}")
            try:
                os.makedirs(self._directory, mode=0o700, exist_ok=True)
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                return True
            except FileExistsError:
                continue
            except OSError:
                return None
        return False

    def remove(self) -> None:
        """Remove the job's files."""
        for end in (".json", ".wish", ".new"):
            try:
                os.unlink(self._base + end)
            except OSError:
                pass
