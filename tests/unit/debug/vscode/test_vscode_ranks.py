"""Launch configurations of single ranks and their compound: made, kept right, taken away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.debug.vscode.test_vscode_files import CONFIGURATION, merge, read, statuses, write
from tunnelkit.errors import UsageError

RIGHT = ["already right", "already right"]


def rank(number: int, port: int = 40056) -> dict[str, Any]:
    entry = {key: value for key, value in CONFIGURATION.items() if key != "preLaunchTask"}
    connect = {"host": "127.0.0.1", "port": port + number}
    return {**entry, "name": f"tk: rank {number}", "connect": connect, "tkRank": number}


def compound(ranks: int) -> dict[str, Any]:
    return {
        "name": f"tk: ranks 0-{ranks - 1}",
        "configurations": [f"tk: rank {one}" for one in range(ranks)],
        "preLaunchTask": "tk: ready",
        "stopAll": True,
    }


def launch_of(ranks: int) -> dict[str, Any]:
    return {
        "version": "0.2.0",
        "configurations": [CONFIGURATION, *(rank(one) for one in range(ranks))],
        "compounds": [compound(ranks)],
    }


def text(project: Path) -> str:
    return (project / ".vscode/launch.json").read_bytes().decode()


def test_a_configuration_for_each_and_a_compound_of_them(tmp_path: Path) -> None:
    assert statuses(merge(tmp_path, ranks=4)) == ["created", "created"]
    assert read(tmp_path, "launch.json") == launch_of(4)
    assert statuses(merge(tmp_path, ranks=4)) == RIGHT


def test_without_a_number_those_that_are_there_are_kept_right(tmp_path: Path) -> None:
    merge(tmp_path, ranks=3)
    assert statuses(merge(tmp_path)) == RIGHT
    before = text(tmp_path)
    merge(tmp_path, port=50000, remote_root="/new")
    expected = before.replace("/home/me/code", "/new")
    for one in range(3):
        expected = expected.replace(str(40056 + one), str(50000 + one))
    assert text(tmp_path) == expected


@pytest.mark.parametrize("ranks", [0, 1])
def test_none_of_them_again_leaves_the_file_as_it_was(tmp_path: Path, ranks: int) -> None:
    write(tmp_path, "launch.json", '{ // mine\n  "compounds": [],\n  "configurations": []\n}\n')
    merge(tmp_path)
    before = text(tmp_path)
    merge(tmp_path, ranks=8)
    assert statuses(merge(tmp_path, ranks=ranks)) == ["already right", "updated"]
    assert text(tmp_path) == before


def test_fewer_and_more(tmp_path: Path) -> None:
    merge(tmp_path, ranks=8)
    merge(tmp_path, ranks=2)
    two = text(tmp_path)
    assert read(tmp_path, "launch.json") == launch_of(2)
    merge(tmp_path, ranks=3)
    assert read(tmp_path, "launch.json") == launch_of(3)
    merge(tmp_path, ranks=2)
    assert text(tmp_path) == two


def test_what_a_person_made_of_them_stays(tmp_path: Path) -> None:
    mine = {**rank(1), "justMyCode": False, "subProcess": False}
    no_rank = {"name": "tk: rank 7", "type": "node", "request": "attach"}
    together = {**compound(4), "stopAll": False, "presentation": {"order": 1}}
    together["configurations"] = ["web", *together["configurations"]]
    document: dict[str, Any] = {
        "configurations": [rank(0), mine, rank(2), rank(3), no_rank],
        "compounds": [{"name": "all", "configurations": ["web"]}, together],
    }
    write(tmp_path, "launch.json", json.dumps(document, indent=2))
    merge(tmp_path, ranks=2)
    together |= compound(2) | {"stopAll": False}
    together["configurations"] = ["tk: rank 0", "tk: rank 1", "web"]
    assert read(tmp_path, "launch.json") == {
        "configurations": [rank(0), mine, no_rank, CONFIGURATION],
        "compounds": [document["compounds"][0], together],
    }
    assert statuses(merge(tmp_path, ranks=2)) == RIGHT


@pytest.mark.parametrize(("ranks", "port"), [(65, 40056), (-1, 40056), (4, 65533)])
def test_ranks_without_a_port_are_refused(tmp_path: Path, ranks: int, port: int) -> None:
    with pytest.raises(UsageError, match="configuration each"):
        merge(tmp_path, ranks=ranks, port=port)
    assert not (tmp_path / ".vscode").exists()


NAMES = st.sampled_from(["a", "tk: rank 0", "tk: rank 5", "tk: ranks 0-2", "tk: attach"])
ENTRIES: st.SearchStrategy[list[Any]] = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES},
        optional={
            "tkRank": st.integers(0, 6) | st.none(),
            "configurations": st.lists(NAMES, max_size=2) | st.none(),
            "connect": st.just({}),
        },
    )
    | st.integers(),
    max_size=4,
)


@settings(deadline=None, max_examples=60)
@given(
    configurations=ENTRIES,
    compounds=ENTRIES,
    numbers=st.lists(st.none() | st.integers(0, 4), min_size=1, max_size=3),
    indent=st.sampled_from([None, 2, "\t"]),
    eol=st.sampled_from(["\n", "\r\n"]),
)
def test_any_file_comes_to_hold_them_and_a_second_run_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    configurations: Any,
    compounds: Any,
    numbers: list[int | None],
    indent: Any,
    eol: str,
) -> None:
    project = tmp_path_factory.mktemp("project")
    document = {"configurations": configurations, "compounds": compounds}
    write(project, "launch.json", json.dumps(document, indent=indent).replace("\n", eol))
    for ranks in numbers:
        merge(project, ranks=ranks)
        assert statuses(merge(project, ranks=ranks)) == RIGHT
    found = read(project, "launch.json")

    for key in ("configurations", "compounds"):
        assert _others(found[key]) == _others(document[key])
    if (last := numbers[-1]) is not None and last > 1:
        names = [one["name"] for one in found["configurations"] if isinstance(one, dict)]
        assert {f"tk: rank {one}" for one in range(last)} <= set(names)
        assert f"tk: ranks 0-{last - 1}" in [
            one["name"] for one in found["compounds"] if isinstance(one, dict)
        ]


def _others(entries: list[Any]) -> list[Any]:
    """Those that are none of tk's business."""
    return [one for one in entries if not (isinstance(one, dict) and one["name"][:2] == "tk")]
