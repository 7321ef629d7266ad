"""States of kept jobs, as files on the cluster tell them: any text, no exception."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.cli.commands.jobs.keep import lines
from tunnelkit.model import Completed
from tunnelkit.scheduler.pbs.batch_scripts import PbsBatchScripts
from tunnelkit.scheduler.slurm.batch_scripts import SlurmBatchScripts
from tunnelkit.session.submit.kept import _states, is_named

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KEYS = "array name node code signal since_s until_s limit_s idle_s gpus cpus attached answered"
STANDING = st.lists(
    st.dictionaries(st.sampled_from(["node", "pid", "rank", "error", "where"]), JSON), max_size=12
)


@given(text=st.text())
def test_any_text_is_read(text: str) -> None:
    _states(text)
    _states(f"tk-kept 1.json {text}")
    SlurmBatchScripts().parse_running(Completed(0, text.encode("utf-8", "replace"), b""))


@given(data=st.dictionaries(st.sampled_from(KEYS.split()), JSON), standing=STANDING | JSON)
def test_any_state_can_be_shown(data: dict[str, object], standing: object) -> None:
    data["standing"] = standing
    ((job, state),) = _states(f"tk-kept 12.json {json.dumps(data)}\n")
    shown = list(lines(state))
    assert job == "12" and shown[0].startswith("job 12")
    assert all(line.isprintable() for line in shown) and len(shown) < 16


def test_a_program_at_its_exception_is_shown_bounded_and_escaped() -> None:
    one = {
        "node": "n\x1b[2J",
        "pid": 7,
        "rank": 1,
        "error": "E: \x1b]0;x\x07" + "a" * 999,
        "where": "f:3",
    }
    state = {"since_s": 1, "until_s": 2, "standing": [one] * 99}
    ((_, found),) = _states(f"tk-kept 12.json {json.dumps(state)}\n")
    shown = list(lines(found))
    assert len(found["standing"]) == 8 and len(found["standing"][0]["error"] or "") == 200
    assert shown[1].startswith("  stands   E: ") and " at f:3 (rank 1, pid 7 on n" in shown[1]
    assert all(line.isprintable() for line in shown)
    assert ", then F5, or let it go" in shown[-1]


def test_pbs_ids_are_files_names() -> None:
    scripts = PbsBatchScripts()
    text = b"tk-job 7.server\ntk-job 8[3].server\ntk-job 9[].server\ntk-job x.y\n"
    assert [one.job_id for one in scripts.parse_running(Completed(0, text, b""))] == ["7", "8-3"]
    assert scripts.wake("8-3")[-1] == "8[3]" and scripts.release("7")[-3:] == ["-s", "TERM", "7"]
    ((job, state),) = _states('tk-kept 8-3.json {"array": "8[3].server"}')
    assert job == "8-3" and is_named(state, "8[3].server") and not is_named(state, "8")
