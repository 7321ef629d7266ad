"""The reason why the session's job waits, for `tk up`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tunnelkit.errors import TunnelkitError
from tunnelkit.model import JobStatus, job_words
from tunnelkit.mux.tasks import cancel_all
from tunnelkit.session.allocation.manager import AllocationManager
from tunnelkit.session.runtime.background_tasks import BackgroundTasks

if TYPE_CHECKING:
    from tunnelkit.diagnosis.verdict import Diagnosis

log = logging.getLogger("tunnelkit.session")

#: Most jobs start before the first question. Then at most one a minute.
_FIRST_S, _AGAIN_S = 10.0, 60.0
#: `tk up` waits no longer for more than the scheduler's reason.
_NEVER_S = 10.0


class WaitingWords:
    """Asks in one task, from `is_pending` to `end`. Its failures only cost the words.

    tasks: the owner of that task. show: called with the state of the waiting job. say: called
    with the verdict, when it is another than before.
    """

    def __init__(
        self,
        cluster: AllocationManager,
        tasks: BackgroundTasks,
        show: Callable[[str], None],
        say: Callable[[str], None],
        *,
        first_s: float = _FIRST_S,
        again_s: float = _AGAIN_S,
    ) -> None:
        self._cluster = cluster
        self._tasks = tasks
        self._show = show
        self._say = say
        self._first_s = first_s
        self._again_s = again_s
        #: What the scheduler says of the job while it waits.
        self.status: JobStatus | None = None
        self._sentence = ""
        self._code = ""
        self._task: asyncio.Task[None] | None = None

    def is_pending(self, status: JobStatus) -> None:
        """Take what the scheduler says of the waiting job."""
        self.status = status
        self._show(self._text(status))
        if self._task is None and status.job_id:
            self._task = self._tasks.spawn(self._ask_on())

    async def why_never(self, status: JobStatus) -> str | None:
        """Say what the job asks for, and what there is; None if the cluster does not answer."""
        try:
            async with asyncio.timeout(_NEVER_S):
                found = await self._diagnosis(status)
        except (TunnelkitError, TimeoutError) as error:
            log.info("why the job can never start is not known: %s", error)
            return None
        if found is None or found.verdicts[0].code != "never":
            return None
        return found.verdicts[0].sentence.removeprefix("can never start: ")

    async def end(self) -> None:
        """Stop asking: the job runs, or nobody waits for it any more."""
        task, self._task = self._task, None
        self.status, self._sentence, self._code = None, "", ""
        if task is not None:
            await cancel_all(task)

    def _text(self, status: JobStatus) -> str:
        why = status.explanation or status.reason or status.native_state
        eta = f", may start {status.start_estimate}" if status.start_estimate else ""
        job = f"{job_words(status.job_id)}: " if status.job_id else ""
        return f"{job}{why}{eta}" + (f"; it {self._sentence}" if self._sentence else "")

    async def _ask_on(self) -> None:
        await asyncio.sleep(self._first_s)
        while True:
            try:
                await self._ask()
            except TunnelkitError as error:
                log.info("why the job waits is not known: %s", error.one_line())
            except Exception:
                log.exception("why the job waits could not be asked")
            await asyncio.sleep(self._again_s)

    async def _ask(self) -> None:
        status = self.status
        found = await self._diagnosis(status) if status is not None else None
        if self.status is None or found is None:
            return
        self._sentence = found.verdicts[0].sentence
        self._show(self._text(self.status))
        if found.verdicts[0].code != self._code:
            self._code = found.verdicts[0].code
            self._say(_words(found))

    async def _diagnosis(self, status: JobStatus) -> Diagnosis | None:
        from tunnelkit.diagnosis.verdict import Stage
        from tunnelkit.session.why.diagnose import diagnose
        from tunnelkit.session.why.sources import cluster_sources

        sources = cluster_sources(self._cluster)
        if sources is None:
            return await self._of_no_pod(status)
        found = await diagnose(sources, status.job_id)
        return found if found.stage is Stage.WAITING and found.verdicts else None

    async def _of_no_pod(self, status: JobStatus) -> Diagnosis | None:
        """Say why an object's controller makes no pod: the status of pods says all else."""
        setup = self._cluster.setup
        if setup.backend.diagnose is None:
            return None
        found = await setup.backend.diagnose(setup.link, setup.settings, status.job_id)
        refused = [one for one in found.verdicts if one.code == "pod-no-pod" and one.because]
        return replace(found, verdicts=tuple(refused)) if refused else None


def _words(found: Diagnosis) -> str:
    verdict = found.verdicts[0]
    text = f"{job_words(found.job_id)} {verdict.sentence}"
    if verdict.sooner_min is not None:
        return f"{text}; up to {verdict.sooner_min} min start now: tk why --start-sooner auto"
    return f"{text}; more: tk why"
