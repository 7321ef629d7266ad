"""`stream`: watch a job's processes on this node; print a JSON object every two seconds.

probe stream [--job ID]

Each object has the form of `sample`'s. Every ten seconds another one comes, `whole`: of all that
time, with file systems. It ends when stdin does, when nobody has sent a byte for half a minute, or
when nobody reads.
"""

import json
import os
import select
import sys
import time
from typing import Dict, List, Optional

from tunnelkit.probe import threads
from tunnelkit.probe.counters import Counters, stat_of, ticks_of
from tunnelkit.probe.gpu.stream import GpuStream
from tunnelkit.probe.job_processes import JobProcesses
from tunnelkit.probe.places import PlaceWatch
from tunnelkit.probe.sample import thread_rows, window
from tunnelkit.probe.threads import Sampled

_FIRST_S, _PERIOD_S = 0.35, 2.0
#: The first object waits so long for the GPU driver: `tk top --once` shows no other.
_GPU_S = 1.0
#: Of the periods that belong to a whole one.
_WHOLE = 5
#: The share of a core that sampling may cost; many threads are sampled less often.
_SHARE = 0.01
_LONGEST_S = 20.0
#: A reader that has taken nothing for so long has gone.
_PATIENCE_S = 60.0
#: So long without a byte on stdin: who looks sends one every eight seconds.
_SILENT_S = 30.0
#: A pipe that can be written to takes so much at once.
_PIECE_BYTES = 4096


def main(words: List[str]) -> int:
    """Stream until nobody wants more; 2 for words that are not known."""
    job = words[1] if len(words) == 2 and words[0] == "--job" else ""
    if words and not job:
        print("probe stream [--job ID]", file=sys.stderr)
        return 2
    stream = Stream(job)
    try:
        stream.run()
    except OSError:
        pass  # nobody reads
    finally:
        stream.close()
    return 0


class Stream:
    """The job, period after period."""

    def __init__(self, job_id: str) -> None:
        self._job = JobProcesses(job_id)
        self._gpu = GpuStream(_PERIOD_S)
        self._began = False
        self._sampled: List[Sampled] = []
        self._rounds = 0
        self._heard_s = time.monotonic()

    def run(self) -> None:
        """Print until stdin ends. Raises OSError if nobody reads."""
        before = self._begin_whole()
        if not self._wait(_FIRST_S, before):
            return
        before = self._period(before)
        pause_s = _PERIOD_S
        while True:
            for _ in range(_WHOLE):
                spent_s = time.process_time()
                if not self._wait(pause_s, before):
                    return
                before = self._period(before)
                spent_s = time.process_time() - spent_s
                pause_s = min(max(_PERIOD_S, spent_s / _SHARE), _LONGEST_S)
            self._whole(before)
            before = self._begin_whole(before)

    def close(self) -> None:
        """End the child that reads the GPUs."""
        self._gpu.close()
        self._forget()

    def _begin_whole(self, now: Optional[Counters] = None) -> Counters:
        now = now or Counters(self._job.look())
        self._start, self._start_s = now, time.monotonic()
        self._since_s = self._start_s
        self._places = PlaceWatch(now.processes)
        self._forget()
        return now

    def _forget(self) -> None:
        for one in self._sampled:
            one.close()
        self._sampled, self._rounds = [], 0

    def _wait(self, seconds: float, before: Counters) -> bool:
        """Sample threads for a while. False: nobody wants more."""
        ends = time.monotonic() + seconds
        if not self._sampled:
            # A moment shows which threads are worth sampling.
            time.sleep(min(0.2, seconds / 4))
            busy = [
                pid
                for pid in before.processes
                if ticks_of(stat_of(pid)) != ticks_of(before.stat[pid])
            ]
            chosen = threads.busiest(before.processes, before.threads, threads.run_and_wait(busy))
            self._sampled = [Sampled(key) for key in chosen]
        self._rounds += threads.sample_until(self._sampled, ends)
        return not self._is_over()

    def _is_over(self) -> bool:
        if select.select([0], [], [], 0)[0]:
            try:
                if not os.read(0, 4096):
                    return True
            except OSError:
                return True
            self._heard_s = time.monotonic()
        return time.monotonic() - self._heard_s > _SILENT_S

    def _period(self, before: Counters) -> Counters:
        now, since_s = Counters(self._job.look(), before), self._since_s
        self._since_s = time.monotonic()
        self._print(before, now, self._since_s - since_s, None)
        return now

    def _whole(self, now: Counters) -> None:
        self._print(self._start, now, time.monotonic() - self._start_s, self._places)

    def _print(
        self, before: Counters, now: Counters, seconds: float, places: Optional[PlaceWatch]
    ) -> None:
        now = now.of_programs(before, seconds)
        found: Dict[str, object] = window(before, now, seconds, places)
        found.update(thread_rows(self._sampled, before, now, seconds, self._rounds))
        if places is not None:
            found["whole"] = True
            found["places"] = places.result(seconds)
        found["gpu"] = self._gpu.latest() if self._began else self._gpu.first(_GPU_S)
        self._began = True
        data = json.dumps(found, separators=(",", ":")).encode() + b"\n"
        while data:
            if not select.select([], [1], [], _PATIENCE_S)[1]:
                raise TimeoutError("nobody reads")
            data = data[os.write(1, data[:_PIECE_BYTES]) :]
