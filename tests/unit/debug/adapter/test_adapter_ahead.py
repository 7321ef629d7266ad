"""What the adapter sends a debuggee that is far away, and what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.unit.debug.adapter.adapter_rig import Rig, adapter_rig
from tunnelkit.errors import DebugError


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with adapter_rig() as made:
        await made.editor.connect(made.adapter.client_port)
        yield made


async def test_what_needs_no_answer_waits_for_none(rig: Rig) -> None:
    attaching = asyncio.create_task(rig.editor.attach({}))
    initialize = await rig.debuggee.request("initialize")
    attach = await rig.debuggee.request("attach")
    rig.debuggee.answer(initialize, supportsConfigurationDoneRequest=True)
    rig.debuggee.answer(attach)
    filters = await rig.debuggee.request("setExceptionBreakpoints")
    done = await rig.debuggee.request("configurationDone")
    rig.debuggee.answer(filters)
    rig.debuggee.answer(done)
    await attaching


async def test_filters_with_options_or_of_a_running_program_are_answered_by_the_debuggee(
    rig: Rig,
) -> None:
    attaching = asyncio.create_task(rig.editor.attach({}))
    for command in ("initialize", "attach", "setExceptionBreakpoints", "configurationDone"):
        rig.debuggee.answer(await rig.debuggee.request(command))
    await attaching
    for more in ({}, {"exceptionOptions": [{"breakMode": "never"}]}):
        asking = asyncio.create_task(
            rig.editor.request("setExceptionBreakpoints", filters=["raised"], **more)
        )
        request = await rig.debuggee.request("setExceptionBreakpoints")
        assert request["arguments"] == {"filters": ["raised"], **more}
        assert not asking.done()
        rig.debuggee.refuse(request, "not today")
        with pytest.raises(DebugError, match="not today"):
            await asking
