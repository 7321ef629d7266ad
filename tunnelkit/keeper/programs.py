"""The script's programs that stand at an exception, looked after while the script runs."""

import re
import signal
from typing import Callable, Dict, List, Optional

from tunnelkit.keeper.kept_files import StandingFiles, Value
from tunnelkit.keeper.waiting import Cause, Keeping, say

#: Seconds between two looks while nothing stands, and while something does.
_LOOK_S, _STANDING_S = 5.0, 2.0

Start = Callable[[Cause], Optional[Keeping]]


class Programs:
    """Keeps the job from the first program's exception until it is let go, once.

    Later ones stand as long as the first; after that none does. start: makes the keeping.
    """

    def __init__(self, files: StandingFiles, start: Start) -> None:
        self._files = files
        self._start = start
        self._keeping: Optional[Keeping] = None
        self._is_over = False

    def look(self) -> float:
        """See which programs stand; return the seconds until the next check."""
        try:
            return self._look()
        except Exception as error:
            say(f"the job can't be kept: {error!r}")
            self._let_go()
            return _LOOK_S

    def takes(self, number: int) -> bool:
        """Return True for the signal by which `tk keep` wakes this process."""
        return self._keeping is not None and number == signal.SIGCONT

    def close(self) -> bool:
        """End the keeping with the script; return True if the job was kept."""
        was_kept = self._keeping is not None or self._is_over
        if self._keeping is not None:
            self._end("the script has ended")
        self._files.remove()
        return was_kept

    def _look(self) -> float:
        if self._is_over:
            return _LOOK_S
        found = self._files.look()
        if self._keeping is None:
            if found:
                self._begin(found)
            return _STANDING_S if found else _LOOK_S
        self._keeping.stands(found)
        reason = self._keeping.step() if found else "no program stands at an exception any more"
        if reason:
            self._end(reason)
            return _LOOK_S
        self._files.answer(until_s=self._keeping.last_moment())
        return min(_STANDING_S, self._keeping.pause_s())

    def _begin(self, found: "List[Dict[str, Value]]") -> None:
        first = found[0]
        error = str(first.get("error"))
        kind = re.sub(r"[^A-Za-z0-9_.]", "", error.partition(":")[0])[:60]
        story = f"a program stands at {error} ({first.get('where')})"
        keeping = self._start(Cause(story, f"at {kind}"))
        reason = "" if keeping is None else keeping.begin()
        if keeping is None or reason:
            if reason:
                say(f"{story}; {reason}")
            self._let_go()
            return
        self._keeping = keeping
        keeping.stands(found)
        self._files.answer(until_s=keeping.last_moment())

    def _end(self, reason: str) -> None:
        keeping, self._keeping = self._keeping, None
        self._let_go()
        if keeping is not None:
            say(f"{reason}: the script goes on, after {keeping.taken()}")
            keeping.finish()

    def _let_go(self) -> None:
        """Tell all programs to go on to their ends, and later ones not to stand."""
        self._is_over = True
        self._files.answer(go=True)
