"""States of kept jobs, as files on the cluster tell them: any text, no exception."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.cli.commands.jobs.keep import lines
from tunnelkit.model import Completed
from tunnelkit.scheduler.slurm.batch_scripts import SlurmBatchScripts
from tunnelkit.session.submit.kept import _states

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KEYS = "array name node code signal since_s until_s limit_s idle_s gpus cpus attached answered"


@given(text=st.text())
def test_any_text_is_read(text: str) -> None:
    _states(text)
    _states(f"tk-kept 1.json {text}")
    SlurmBatchScripts().parse_running(Completed(0, text.encode("utf-8", "replace"), b""))


@given(data=st.dictionaries(st.sampled_from(KEYS.split()), JSON))
def test_any_state_can_be_shown(data: dict[str, object]) -> None:
    ((job, state),) = _states(f"tk-kept 12.json {json.dumps(data)}\n")
    shown = list(lines(state))
    assert job == "12" and shown[0].startswith("job 12")
    assert all(line.isprintable() for line in shown)
