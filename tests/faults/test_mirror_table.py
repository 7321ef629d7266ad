"""The 32 faults of a mirror, what should happen, and the tests that hold it.

Each name is `file: test`, below tests/; that they are all there is a test of its own.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]

#: number: (fault, what should happen, tests)
FAULTS: dict[int, tuple[str, str, list[str]]] = {
    1: (
        "source root deleted, unmounted or emptied",
        "halt, remote untouched, explicit confirmation",
        [
            "e2e/test_mirror_safety: test_emptied_root_halts",
            "e2e/test_mirror_safety: test_vanished_root_halts_even_when_confirmed",
            "faults/test_mirror_places: test_1_an_unmounted_source_halts",
            "e2e/test_mirror_owner: test_halted_at_the_start_can_be_confirmed",
        ],
    ),
    2: (
        "deletes over a threshold",
        "halt with the list",
        [
            "e2e/test_mirror_safety: test_many_deletes_halt_with_the_list",
            "unit/mirror/passes/test_delete_guard: test_delete_limit",
        ],
    ),
    3: (
        "wrong or empty target",
        "refuse",
        [
            "e2e/test_mirror_safety: test_dangerous_targets_are_refused",
            "unit/mirror/remote/test_root: test_refused_by_name",
        ],
    ),
    4: (
        "symlinked remote parent",
        "nothing written outside the root",
        ["e2e/test_mirror_safety: test_a_symlink_on_the_cluster_is_never_followed"],
    ),
    5: (
        "link killed mid-file",
        "old or new content only, temporaries cleaned, converges",
        [
            "faults/test_mirror_links: test_5_a_link_killed_in_the_middle_leaves_old_or_new",
            "e2e/test_mirror_faults: test_a_killed_transfer_leaves_old_or_new",
        ],
    ),
    6: (
        "black-holed link",
        "noticed in 15 s, stale, no hang",
        [
            "faults/test_mirror_links: test_6_a_black_hole_is_told_and_nothing_hangs",
            "faults/test_mirror_links: test_the_session_says_stale_by_itself",
            "e2e/test_mirror_faults: test_a_silent_link_does_not_hang",
        ],
    ),
    7: (
        "suspended 10 minutes",
        "full verify",
        ["unit/mirror/watch/test_watch_loss: test_after_a_sleep_everything_is_looked_at"],
    ),
    8: (
        "inotify overflow",
        "detected, rescan, nothing missing",
        [
            "unit/mirror/watch/test_watch_loss: test_20_000_files_while_its_thread_stands_still",
            "unit/mirror/watch/test_watch_limits: "
            "test_the_kernel_overflows_while_the_process_is_stopped",
        ],
    ),
    9: (
        "watch limit reached",
        "polling, visible warning",
        [
            "unit/mirror/watch/test_watch_limits: test_no_watch_at_all",
            "unit/mirror/watch/test_watch_limits: "
            "test_not_enough_watches_at_the_start_and_then_enough",
            "unit/mirror/watch/test_watch_limits: test_the_last_watch_is_used_up_later",
        ],
    ),
    10: (
        "nested new directories filled at once",
        "all arrive",
        [
            "faults/test_mirror_files: test_10_nested_directories_filled_at_once_all_arrive",
            "unit/mirror/watch/test_watch_saves: test_nested_new_directories_filled_at_once",
        ],
    ),
    11: (
        "every editor's save style",
        "final content once, no delete window",
        [
            "faults/test_mirror_files: test_11_every_save_style_arrives_and_is_never_missing",
            "unit/mirror/watch/test_watch_saves: test_a_save_is_one_batch_with_the_final_content",
        ],
    ),
    12: (
        "file vanishes, grows, shrinks mid-transfer",
        "others go on, it is retried",
        [
            "faults/test_mirror_files: test_12_a_file_that_changes_while_it_is_sent",
            "faults/test_mirror_files: test_12_others_go_on_while_one_is_never_at_rest",
        ],
    ),
    13: (
        "file/directory swap",
        "final state right",
        [
            "faults/test_mirror_files: test_13_names_that_change_places",
            "e2e/test_mirror: test_swaps_of_kind",
        ],
    ),
    14: (
        "case-only rename, NFC/NFD",
        "no loss, collision reported",
        [
            "e2e/test_mirror_names: test_a_new_spelling_arrives_exactly",
            "e2e/test_mirror_names: test_a_folding_cluster_gets_neither_of_a_pair",
            "unit/mirror/tree/test_name_collisions: test_both_of_a_pair_are_named_with_the_other",
        ],
    ),
    15: (
        "same size and mtime, other content",
        "caught by checksum",
        [
            "e2e/test_mirror: test_an_edit_with_same_size_and_mtime_is_seen",
            "faults/test_mirror_files: "
            "test_15_same_size_and_mtime_on_the_cluster_is_found_by_content",
            "e2e/test_mirror_conflicts: test_the_node_finds_what_stat_does_not_tell",
        ],
    ),
    16: (
        "clock skew of an hour",
        "right",
        ["faults/test_mirror_files: test_16_an_hour_between_the_clocks"],
    ),
    17: (
        "remote full",
        "named error, retry, converges",
        ["faults/test_mirror_places: test_17_a_full_disk_is_named_and_converges"],
    ),
    18: (
        "one remote file unwritable",
        "that path shown stale, F5 blocked, retried",
        [
            "faults/test_mirror_places: test_18_one_unwritable_file_is_told_and_retried",
            "e2e/test_mirror_faults: test_a_path_that_cannot_be_written_is_named",
        ],
    ),
    19: (
        "remote file edited there",
        "conflict, never a silent overwrite",
        [
            "e2e/test_mirror_conflicts: test_an_edit_there_is_never_overwritten",
            "e2e/test_mirror_conflicts: test_as_a_person_sees_it",
        ],
    ),
    20: (
        "remote-only outputs and ignored files",
        "survive",
        [
            "e2e/test_mirror_safety: test_deletes_only_what_it_sent",
            "e2e/test_mirror: test_a_file_that_becomes_ignored_stays_there",
            "e2e/test_mirror_property: test_equal_after_every_barrier",
        ],
    ),
    21: (
        "checkout of 5,000 files mid-run",
        "one generation, one restart",
        [
            "faults/test_mirror_files: test_21_a_checkout_of_5000_files_is_one_generation",
            "unit/mirror/watch/test_watch_saves: test_a_checkout_is_one_batch",
        ],
    ),
    22: (
        "F5 during transfer",
        "waits; on timeout names the pending paths",
        [
            "faults/test_mirror_links: "
            "test_22_a_barrier_waits_for_the_transfer_and_names_what_is_pending",
        ],
    ),
    23: (
        "agent or client kill -9",
        "restart converges, no stale lock",
        [
            "e2e/test_mirror_property: test_equal_after_every_barrier",
            "e2e/test_mirror_property: test_equal_after_every_barrier_of_a_session",
            "e2e/test_mirror_owner: test_after_kill_9_the_same_directory_goes_on_at_once",
            "faults/test_mirror_links: test_23_no_lock_is_left_by_a_link_that_died_at_the_start",
        ],
    ),
    24: (
        "two mirrors on one target",
        "the second is refused, naming the owner",
        [
            "e2e/test_mirror_owner: test_the_second_is_refused_naming_the_first",
            "e2e/test_mirror_owner: test_two_at_once_one_wins",
            "e2e/test_mirror_names: test_a_target_in_or_around_another_is_refused",
        ],
    ),
    25: (
        "banner in the login shell, tcsh or fish",
        "works or exact diagnosis",
        [
            "faults/test_mirror_places: test_25_any_login_shell",
            "faults/test_mirror_places: test_25_a_shell_that_talks_is_named_and_does_no_harm",
            "faults/test_mirror_places: test_25_whatever_a_shell_prints",
            "faults/test_mirror_places: test_25_a_shell_that_talks_on_stderr_works",
        ],
    ),
    26: (
        "rsync missing or openrsync",
        "fallback chosen",
        [
            "e2e/test_mirror_tar: test_the_mirror_by_tar",
            "e2e/test_mirror_without_rsync: test_the_rsync_of_this_computer_won_t_do",
            "e2e/test_mirror_without_rsync: test_an_rsync_there_that_won_t_do",
        ],
    ),
    27: (
        "remote Python missing or old",
        "rsync only",
        ["e2e/test_mirror_without_rsync: test_no_python_there"],
    ),
    28: (
        "stale ControlMaster",
        "recreated without a prompt storm",
        ["faults/test_mirror_links: test_28_a_stale_master_is_made_again_with_one_login"],
    ),
    29: (
        "node replaced",
        "re-seed, verify",
        [
            "faults/test_mirror_links: test_29_another_node_is_seeded_and_proven_anew",
            "faults/test_mirror_links: test_29_forgotten_proofs_are_had_again_from_the_new_node",
            "faults/test_mirror_places: "
            "test_29_a_node_that_does_not_see_the_directory_proves_nothing",
        ],
    ),
    30: (
        "shared file system 5 s late",
        "the barrier waits for the node's digest",
        [
            "faults/test_mirror_links: test_30_a_node_that_sees_files_5_s_late",
            "e2e/test_mirror_faults: test_the_node_must_prove",
        ],
    ),
    31: (
        "names with newline, spaces, leading dash, non-UTF-8",
        "exact",
        [
            "e2e/test_mirror: test_odd_names_are_exact",
            "e2e/test_mirror_tar: test_all_arrives_exactly",
            "unit/mirror/watch/test_watch_saves: test_names_that_are_no_text",
        ],
    ),
    32: (
        "sshfs server dies",
        "bounded errors, unmounts without sudo",
        [
            "e2e/test_mounts: test_a_silent_server_is_noticed_and_readers_get_errors",
            "e2e/test_mirror_sshfs: test_sshfs_of_a_dead_server_unmounts",
        ],
    ),
}


def test_every_fault_is_in_the_table() -> None:
    assert list(FAULTS) == list(range(1, 33))


def _functions(file: Path) -> set[str]:
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {one.name for one in nodes if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("number", FAULTS)
def test_its_tests_are_there(number: int) -> None:
    _, _, names = FAULTS[number]
    assert names
    for name in names:
        place, _, function = name.partition(": ")
        file = _TESTS / f"{place}.py"
        assert file.is_file(), f"{name}: there is no {file}"
        assert function in _functions(file), name
