"""Messages between session and agent to ask a debuggee ahead of its editor.

A plan is a list of requests that an editor sends after a stop. One that names a thread, a frame or
a variable has a path in place of its number, which is another at each stop:

    ["thread"]             the thread that has stopped
    ["frame", 0]           its top frame
    ["scope", 0]           the first scope of that frame
    ["scope", 0, "self"]   a variable in it, and so on
"""

import json
from typing import Dict, List, Mapping, Optional, Tuple, Union, cast

#: The agent's own requests are numbered from here: adapters count from 1, sessions below it.
AGENT_SEQ = 1 << 48
#: Session to agent: `plan` replaces the plan. Read-ahead begins with the first one.
PLAN = "tkReadAhead"
#: Session to agent: the answer to the agent's request `number` is wanted as that to `wanted`.
WANT = "tkWant"
#: Agent to session: `asked` has [number, command, arguments] of each request that was sent;
#: `passed` counts the requests that were not harmless, since the first plan.
ASKED = "tkAsked"
#: A stop's answers that are sent before they are wanted.
STOP_BYTES = 64 * 1024
MOST_STEPS = 24
_LONGEST_PATH = 5
#: The argument that a path stands for.
NUMBERED = {
    "threads": "",
    "stackTrace": "threadId",
    "scopes": "frameId",
    "variables": "variablesReference",
}
#: They change nothing that was read ahead.
_HARMLESS = frozenset(
    (
        *("threads", "stackTrace", "scopes", "variables", "exceptionInfo", "modules", "source"),
        *("loadedSources", "initialize", "attach", "pydevdSystemInfo"),
        *("setBreakpoints", "setFunctionBreakpoints", "setExceptionBreakpoints"),
    )
)
#: tk's own question where a rank is (debuggee/evaluated/rank_look.py).
_LOOK = "_tk_rank_look_"

Path = Tuple[Union[str, int], ...]
Json = Dict[str, object]


def is_harmless(command: str, arguments: Mapping[str, object]) -> bool:
    """True if the request leaves the program, and what can be seen of it, as it is."""
    if command != "evaluate":
        return command in _HARMLESS
    expression, context = arguments.get("expression"), arguments.get("context")
    if not isinstance(expression, str):
        return False
    looks = context == "clipboard" and _LOOK in expression
    return looks or (context in ("watch", "hover") and expression.isidentifier())


def parse(body: bytes) -> Json:
    """The message as an object; {} if it is none."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def part(message: Mapping[str, object], key: str) -> Json:
    """An object of a message; {} if it has none."""
    value = message.get(key)
    return cast(Json, value) if isinstance(value, dict) else {}


def items(value: object) -> List[Json]:
    """The objects of a list; an item that is none is {}."""
    if not isinstance(value, list):
        return []
    return [one if isinstance(one, dict) else {} for one in value]


def path_of(value: object) -> Optional[Path]:
    """A path as it came in a message; None if it is none."""
    if not isinstance(value, list) or len(value) > _LONGEST_PATH:
        return None
    good = all(isinstance(one, (str, int)) and not isinstance(one, bool) for one in value)
    return tuple(value) if good else None


class Places:
    """The numbers of one stop: of its thread, frames and variables."""

    def __init__(self, thread: object) -> None:
        self._numbers: Dict[Path, int] = {}
        self._paths: Dict[Tuple[str, int], Path] = {}
        self._add("stackTrace", ("thread",), thread)

    def number(self, path: Path) -> Optional[int]:
        """The number at a path; None if it is not known."""
        return self._numbers.get(path)

    def path(self, command: str, arguments: Mapping[str, object]) -> Optional[Path]:
        """The path that a request names; None if it is not known."""
        key = NUMBERED.get(command)
        if not key:
            return () if key is not None else None
        number = arguments.get(key)
        return self._paths.get((command, number)) if isinstance(number, int) else None

    def learn(
        self, command: str, path: Path, arguments: Mapping[str, object], response: Json
    ) -> None:
        """Take the numbers of an answer."""
        body = part(response, "body")
        if command == "stackTrace" and not arguments.get("startFrame"):
            for frame in items(body.get("stackFrames"))[:1]:
                self._add("scopes", ("frame", 0), frame.get("id"))
        elif command == "scopes":
            for place, scope in enumerate(items(body.get("scopes"))[:4]):
                self._add("variables", ("scope", place), scope.get("variablesReference"))
        elif command == "variables" and len(path) < _LONGEST_PATH:
            for variable in items(body.get("variables")):
                name = variable.get("name")
                if isinstance(name, str):
                    self._add("variables", (*path, name), variable.get("variablesReference"))

    def _add(self, command: str, path: Path, number: object) -> None:
        if isinstance(number, int) and number > 0:
            self._numbers.setdefault(path, number)
            self._paths.setdefault((command, number), path)


def request(number: int, command: str, arguments: Mapping[str, object]) -> bytes:
    """A request as a body."""
    message = {"seq": number, "type": "request", "command": command, "arguments": arguments}
    return json.dumps(message).encode("ascii")


def event(name: str, content: Json) -> bytes:
    """An event as a body."""
    message = {"seq": 0, "type": "event", "event": name, "body": content}
    return json.dumps(message).encode("ascii")


def answer_to(number: object, body: bytes) -> bytes:
    """A response, as that to request `number`."""
    return json.dumps(dict(parse(body), request_seq=number)).encode("ascii")
