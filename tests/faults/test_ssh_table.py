"""The faults of connections and schedulers, what should happen, and the tests that hold it.

Each name is `file: test`, below tests/; that they are all there is a test of its own. "The debug
session" of a row survives with the same local ports where the job does; its tests step on in it.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]

#: fault: (what should happen, tests)
FAULTS: dict[str, tuple[str, list[str]]] = {
    "sleep and wake": (
        "noticed by itself; job and debug session survive; same local ports",
        [
            "faults/test_ssh_losses: test_sleep_and_wake",
            "faults/test_lost_links: "
            "test_ssh_killed_five_times_while_stopped_and_the_same_session_steps_on",
            "unit/mirror/watch/test_watch_loss: test_after_a_sleep_everything_is_looked_at",
        ],
    ),
    "Wi-Fi change": (
        "noticed within 45 s; the same",
        [
            "faults/test_netns: test_the_laptop_changes_its_address_while_stopped",
            "faults/test_netns: test_the_main_job_and_a_link_down_for_30_s_while_stopped",
        ],
    ),
    "black hole": (
        "noticed within 15 s, nothing hangs",
        [
            "faults/test_netns: test_the_main_job_and_a_link_down_for_30_s_while_stopped",
            "faults/test_mirror_links: test_6_a_black_hole_is_told_and_nothing_hangs",
            "contract/link/test_link_refusals: test_a_black_hole_is_bounded",
        ],
    ),
    "reconnect needs 2FA": (
        "one look in BatchMode, then it waits for `tk auth`",
        [
            "e2e/test_auth: test_one_prompt_at_up_and_after_a_cut_none_without_tk_auth",
            "e2e/test_auth: test_a_wrong_code_costs_one_attempt_and_tk_auth_may_try_again",
            "e2e/test_auth: test_a_wrong_code_at_up_is_said_and_leaves_nothing",
            "unit/session/connection/test_link_keeper: test_nobody_is_asked_outside_of_a_visit",
            "unit/session/connection/test_link_keeper: "
            "test_what_a_person_has_to_mend_is_tried_once_until_one_comes",
            "faults/test_ssh_keys: "
            "test_an_agents_key_lets_a_reconnect_in_and_an_empty_agent_sends_for_a_person",
        ],
    ),
    "MaxSessions hit": (
        "sessions queue; never a second authentication",
        [
            "faults/test_ssh_refusals: "
            "test_with_one_session_the_rest_queues_and_nothing_authenticates_again",
            "contract/link/test_link_commands: test_a_refused_session_waits_its_turn",
        ],
    ),
    "local port taken": (
        "the owner is named, the next one taken, launch.json updated",
        [
            "faults/test_ssh_places: "
            "test_a_taken_debug_port_names_its_owner_and_launch_json_follows",
            "e2e/test_bad_input: test_the_port_of_a_configured_forward_is_taken",
            "contract/link/test_link_forwards: test_a_taken_port_names_its_owner",
        ],
    ),
    "login node reboots": (
        "reconnected; the job is found where it is",
        [
            "faults/test_ssh_losses: test_the_login_host_reboots",
            "faults/test_killed_session: "
            "test_job_and_debuggee_outlive_it_and_tk_up_takes_them_over",
        ],
    ),
    "round-robin login alias": (
        "the real host is pinned; another one serves when it is gone",
        [
            "faults/test_ssh_losses: "
            "test_a_round_robin_name_leads_back_to_the_same_host_while_it_is_there"
        ],
    ),
    "reply lost after submit": (
        "the job is looked up by name before anything is submitted again",
        [
            "faults/test_ssh_scheduler: "
            "test_the_reply_of_sbatch_is_lost_and_the_job_is_not_submitted_twice"
        ],
    ),
    "preempted, requeued on another node": (
        "re-resolved, re-plumbed, said",
        ["e2e/test_slurm_requeue: test_preempted_it_waits_and_goes_on_where_it_runs_again"],
    ),
    "time limit": (
        "warned at 10 and 2 minutes left; state TIMEOUT",
        ["e2e/test_slurm_limits: test_it_is_told_at_10_and_2_minutes_once_and_then_the_end"],
    ),
    "node fails": (
        "NODE_FAIL, no loop, offer to resubmit",
        ["faults/test_debug_allocation: test_the_end_of_the_allocation_is_told_to_editor_and_f5"],
    ),
    "host key changed": (
        "a hard stop with both fingerprints",
        [
            "faults/test_ssh_refusals: "
            "test_a_changed_host_key_is_a_hard_stop_until_somebody_has_looked",
            "contract/link/test_link_refusals: test_changed_host_key_is_a_hard_stop",
            "contract/link/test_link_refusals: test_changed_node_key_is_a_hard_stop",
        ],
    ),
    "slow DNS": (
        "bounded; tk answers meanwhile",
        [
            "faults/test_ssh_places: "
            "test_a_name_service_that_hangs_is_bounded_and_tk_status_answers",
            "unit/session/connection/test_link_keeper: "
            "test_a_name_that_is_not_known_just_now_needs_nobody",
        ],
    ),
    "home full or read-only": (
        "a clear error; sockets in node-local scratch",
        [
            "e2e/test_bad_places: test_a_home_that_is_full",
            "e2e/test_bad_places: test_a_home_that_is_read_only",
            "faults/test_mirror_places: test_17_a_full_disk_is_named_and_converges",
        ],
    ),
    "AllowTcpForwarding no": (
        "all goes over exec's stdio",
        [
            "faults/test_ssh_refusals: "
            "test_without_tcp_forwarding_all_goes_by_the_scheduler_and_the_wire",
            "contract/link/test_link_forwards: test_an_honest_error_where_login_forbids_forwarding",
        ],
    ),
    "MaxStartups": (
        "jittered exponential back-off, no parallel cold connects",
        [
            "faults/test_ssh_refusals: test_max_startups",
            "faults/test_ssh_refusals: "
            "test_a_host_that_hangs_up_is_left_alone_for_longer_each_time",
        ],
    ),
    "PerSourcePenalties": (
        "the same",
        [
            "faults/test_ssh_refusals: "
            "test_a_host_that_hangs_up_is_left_alone_for_longer_each_time",
            "unit/session/connection/test_link_keeper: "
            "test_pauses_grow_to_a_bound_and_are_longer_for_a_host_that_hangs_up",
        ],
    ),
    "scheduler down or hung": (
        "state unknown, never ended",
        [
            "faults/test_ssh_scheduler: test_a_hung_scheduler_is_unknown_and_never_the_end",
            "contract/scheduler/test_slurm_on_a_cluster: test_a_controller_that_is_away",
            "unit/scheduler/test_poller: "
            "test_trouble_is_unknown_with_growing_pauses_and_never_the_end",
        ],
    ),
}


def _functions(file: Path) -> set[str]:
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {one.name for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_that_uses_a_cluster_answers_for_its_authentications(
    request: pytest.FixtureRequest,
) -> None:
    """Below faults/ and docker/ all do; who is in the table from e2e/ has to say so."""
    assert "counted_logins" in request.fixturenames
    for _, names in FAULTS.values():
        for name in names:
            place, _, function = name.partition(": ")
            if place.startswith("e2e/"):
                text = (_TESTS / f"{place}.py").read_text(encoding="utf-8")
                decorators = text[: text.index(f"def {function}(")].rpartition("\n\n")[2]
                whole_file = text.partition("pytestmark = ")[2].partition("\n\n")[0]
                assert "counted_logins" in decorators + whole_file, name


@pytest.mark.parametrize("fault", FAULTS)
def test_its_tests_are_there(fault: str) -> None:
    _, names = FAULTS[fault]
    assert names
    for name in names:
        place, _, function = name.partition(": ")
        file = _TESTS / f"{place}.py"
        assert file.is_file(), f"{name}: there is no {file}"
        assert function in _functions(file), name
