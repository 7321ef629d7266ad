"""All questions side by side, each with a limit; one line of JSON with what came in time."""

import json
import os
import pkgutil
import shutil
import sys
import threading
import time
from typing import Callable, Dict, List

from tunnelkit.script_check import environment, places
from tunnelkit.script_check.bounded import output_of

#: All of it. A file system that does not answer keeps its thread, not the rest.
LIMIT_S = 35.0
_ASK_S = 12
_MOST_BYTES = 200000


class Request:
    """The things to check. See `session/simulate/check.py`, which makes it."""

    def __init__(self, text: str) -> None:
        data = json.loads(text)
        self.directory = str(data["directory"])
        self.chdir = str(data["chdir"])
        self.outputs = [str(one) for one in data["outputs"]]
        self.interpreter = [str(one) for one in data["interpreter"]]
        self.programs = [str(one) for one in data["programs"]]
        self.argv = [str(one) for one in data["argv"]]
        self.stdin = str(data["stdin"])
        self.steps: List[environment.Step] = [
            (str(one["kind"]), [str(word) for word in one["words"]]) for one in data["steps"]
        ]
        self.text = str(data["text"])
        self.login = bool(data["login"])
        self.mirrored = environment.real_places([str(one) for one in data["mirrored"]])


def main(text: str, mark: str) -> None:
    """Answer one request, after `mark` on stdout, and end at once."""
    request = Request(text)
    found: Dict[str, object] = {"host": os.uname().nodename}
    here = places.working_directory(request.directory, request.chdir)
    found["directory"] = here
    job = str(here["path"])
    questions: Dict[str, Callable[[], object]] = {
        "refusal": lambda: refusal(request, str(here["base"])),
        "outputs": lambda: [places.output(one, job) for one in request.outputs],
        "interpreter": lambda: places.interpreter(request.interpreter),
        "programs": lambda: [places.program(one, job) for one in request.programs],
        "rooms": lambda: places.rooms([job, os.path.expanduser("~")]),
        "quota": places.quota,
        "steps": lambda: steps(request, job),
    }
    if not request.interpreter:
        del questions["interpreter"]
    if not request.argv:
        del questions["refusal"]
    threads = [_start(name, ask, found) for name, ask in questions.items()]
    ends = time.monotonic() + LIMIT_S
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
    sys.stdout.write(f"\n{mark} {json.dumps(dict(found))}\n")
    sys.stdout.flush()
    os._exit(0)


def _start(name: str, ask: Callable[[], object], found: Dict[str, object]) -> threading.Thread:
    def run() -> None:
        try:
            found[name] = ask()
        except Exception as error:
            found[name + "-problem"] = str(error)[:200]

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def refusal(request: Request, directory: str) -> Dict[str, object]:
    """Ask the scheduler, in the directory of the submission."""
    try:
        done = output_of(
            request.argv,
            limit_s=_ASK_S,
            most_bytes=_MOST_BYTES,
            stdin=request.stdin.encode("latin-1"),
            cwd=directory,
            errors_too=True,
        )
    except OSError as error:
        return {"code": 127, "text": str(error)}
    return {"code": done.code, "text": done.problem or done.data.decode("utf-8", "replace")}


def steps(request: Request, job: str) -> Dict[str, object]:
    """Do the script's steps for its environment, and look for the imports of its programs."""
    if not request.steps:
        return {"rows": []}
    data = pkgutil.get_data("tunnelkit.script_check", "imports.py") or b""
    if request.text:
        return {"rows": [_of_text(request, data.decode(), job)]}
    first: environment.Step = ("cd", [job])
    steps = [first, *request.steps]
    return environment.answers(steps, data.decode(), request.login, request.mirrored)


def _of_text(request: Request, imports: str, job: str) -> Dict[str, object]:
    """Look for the imports of a script that is itself a Python program."""
    words = request.steps[0][1]
    named = words[0]
    python = os.path.join(job, named) if "/" in named else shutil.which(named) or named
    for place in (python, os.path.dirname(python)):
        if environment.lies_in(place, request.mirrored):
            return {"kind": "own", "step": 1, "code": 0, "text": python}
    argv = [python, "-c", environment.ALONE + imports, "text", words[2], job]
    try:
        text = request.text.encode("utf-8", "surrogatepass")
        done = output_of(argv, limit_s=_ASK_S, most_bytes=_MOST_BYTES, stdin=text, cwd=job)
        report = json.loads(done.data.decode("utf-8", "replace"))
    except (OSError, ValueError) as error:
        return {"kind": "python", "step": 1, "code": 127, "text": str(error)[:200]}
    return {"kind": "python", "step": 1, "code": 0, "text": "", "report": report}
