"""All codes by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tunnelkit.diagnosis.codes.code import Code
from tunnelkit.diagnosis.codes.ended import ENDED
from tunnelkit.diagnosis.codes.ended_pbs import ENDED_PBS
from tunnelkit.diagnosis.codes.pods import PODS
from tunnelkit.diagnosis.codes.running import RUNNING
from tunnelkit.diagnosis.codes.waiting import WAITING
from tunnelkit.diagnosis.codes.waiting_pbs import WAITING_PBS

CODES: Mapping[str, Code] = MappingProxyType(
    {one.name: one for one in (*WAITING, *WAITING_PBS, *RUNNING, *ENDED, *ENDED_PBS, *PODS)}
)
