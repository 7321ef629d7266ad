"""The check's findings: from a script's text, and from whatever the login host answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunnelkit import script_check_zip
from tunnelkit.scheduler.slurm.script_options import SlurmScriptOptions
from tunnelkit.simulate.cluster_checks import Asked, cluster_findings, over_quota
from tunnelkit.simulate.environment_checks import alternatives
from tunnelkit.simulate.finding import Finding, Level, failed, from_info, to_info
from tunnelkit.simulate.script_steps import script_needs
from tunnelkit.simulate.text_checks import text_findings

SLURM = SlurmScriptOptions()
SCRIPT = (
    b"#!/bin/bash\n#SBATCH -o logs/%j\nmodule load cuda/12.9\nsource v/bin/activate\n"
    b"./run.sh\npython train.py\n"
)
WELL: dict[str, object] = {
    "refusal": {"code": 0, "text": ""},
    "directory": {"path": "/home/u/p", "is": "ok"},
    "outputs": [{"path": "logs/_", "directory": "/home/u/p/logs", "is": "ok"}],
    "interpreter": {"path": "/bin/bash", "is": "ok"},
    "programs": [{"path": "./run.sh", "is": "ok"}],
    "rooms": [{"path": "/home/u/p", "used": 0.81, "free_bytes": 1e9, "inodes": 0.1}],
    "quota": {"text": "", "problem": "no quota command"},
    "steps": {
        "rows": [
            {"kind": "cd", "step": 0, "code": 0, "text": ""},
            {"kind": "module", "step": 1, "code": 0, "text": ""},
            {"kind": "into", "step": 2, "code": 0, "text": "/home/u/p/v"},
            {
                "kind": "python", "step": 3, "code": 0, "text": "",
                "report": {"python": "/home/u/p/v/bin/python", "version": "3.11.9", "missing": []},
            },
        ]
    },
}  # fmt: skip


def asked(script: bytes = SCRIPT) -> Asked:
    return Asked(SLURM, SLURM.request(SLURM.words(script)), script_needs(script))


def found(**changes: object) -> list[Finding]:
    return list(cluster_findings({**WELL, **changes}, asked()))


def bad(**changes: object) -> list[str]:
    return [f"{one.text} | {one.hint}" for one in found(**changes) if one.level is Level.FAIL]


def text_bad(script: bytes) -> list[str]:
    request = SLURM.request(SLURM.words(script))
    return [one.text for one in text_findings(script, SLURM, request) if one.level is Level.FAIL]


def test_all_is_well() -> None:
    assert {one.level for one in found()} == {Level.OK}
    assert {"refusal", "directory", "output", "interpreter", "modules", "imports", "room"} == {
        one.check for one in found()
    }
    assert not failed(found())
    assert [from_info(to_info(one)) for one in found()] == found()


def test_a_text_s_faults() -> None:
    assert text_bad(SCRIPT) == []
    (ends,) = text_bad(b"#!/bin/sh\r\n:\r\n")
    assert ends == r"line 1 ends with \r\n, as on Windows: sbatch refuses them"
    assert text_bad(b" \n") == ["the script is empty"]
    assert text_bad(b"echo\n") == ["the first line is no #! line: sbatch refuses such a script"]
    assert text_bad(b"\xef\xbb\xbf#!/bin/sh\n:\n") == [
        "an invisible mark (UTF-8's BOM) stands before #!"
    ]
    assert text_bad(b"#!/bin/sh\n:\n#SBATCH -c 2\n") == [
        "#SBATCH in line 3 stands after the first command: nobody reads it"
    ]
    assert "NUL" in text_bad(b"#!/bin/sh\n\0\n")[0]


def test_what_the_cluster_lacks() -> None:
    (one,) = bad(refusal={"code": 1, "text": "sbatch: error: Invalid partition name specified"})
    assert one.startswith("sbatch refuses it: Invalid partition name")
    missing = {"path": "logs/_", "directory": "/home/u/p/logs", "is": "missing"}
    assert bad(outputs=[missing]) == [
        "output directory /home/u/p/logs is not there: Slurm would end the job at once without a "
        "word (0:53) | mkdir -p /home/u/p/logs, on the cluster"
    ]
    assert bad(programs=[{"path": "./run.sh", "is": "not-executable"}]) == [
        "./run.sh (line 5) is not executable | chmod +x ./run.sh"
    ]
    full = {"path": "/home", "used": 0.999, "free_bytes": 1e6}
    assert bad(rooms=[full]) == ["/home: the file system is 100% full, 1.0 MB free | "]
    assert bad(interpreter={"path": "/bin/bash", "is": "missing"})[0].startswith(
        "interpreter /bin/b"
    )


def test_what_was_left_out_is_said() -> None:
    script = SCRIPT.replace(b"source v", b"cd $TMPDIR\nsource v")
    unknown = [one for one in cluster_findings(WELL, asked(script)) if one.level is Level.UNKNOWN]
    assert [(one.check, one.text) for one in unknown] == [
        ("imports", "what line 4 does only the job will know: not all after it was checked")
    ]


def steps(*rows: dict[str, Any]) -> dict[str, object]:
    return {"rows": list(rows)}


def test_modules_and_imports() -> None:
    there = "/apps:\ncuda/12.4(default)\ncuda/12.6\ncudnn/9\n"
    module = {"kind": "module", "step": 1, "code": 1, "text": "ERROR"}
    avail = {"kind": "avail", "step": 1, "code": 0, "text": there}
    python = {
        "kind": "python", "step": 3, "code": 0, "text": "",
        "report": {
            "python": "/home/u/p/v/bin/python", "version": "3.11.9", "errors": [],
            "missing": [
                {"name": "wandb", "file": "/home/u/p/train.py", "line": 7, "needed": True},
                {"name": "rare", "file": "/home/u/p/train.py", "line": 9, "needed": False},
            ],
        },
    }  # fmt: skip
    into = {"kind": "into", "step": 2, "code": 0, "text": "/home/u/p/v"}
    texts = bad(steps=steps(module, avail, into, python))
    assert texts == [
        "module cuda/12.9: there are cuda/12.4, 12.6 | ",
        "import wandb (train.py:7): not in v/bin/python (3.11.9), which the script activates | ",
    ]
    # Without the environment the interpreter would be a module's, which is not there.
    lost = found(steps=steps(module, avail, python))
    assert [one.level for one in lost if one.check == "imports"] == [Level.UNKNOWN]
    gone = {"kind": "into", "step": 2, "code": 1, "text": "/home/u/p/v"}
    assert bad(steps=steps(gone, python)) == ["environment v (line 4) is not there | "]


def test_what_lies_in_the_project_is_unknown() -> None:
    module = {"kind": "own", "step": 1, "code": 0, "text": ""}
    python = {"kind": "own", "step": 3, "code": 0, "text": "/home/u/p/v/bin/python"}
    unknown = [one.text for one in found(steps=steps(module, python)) if one.level is not Level.OK]
    assert unknown == [
        "module load cuda/12.9 (line 3) was not done: its modules lie in the project, of which a "
        "check runs nothing",
        "the imports of train.py were not looked for: python lies in the project, of which a check "
        "runs nothing",
    ]
    assert not failed(found(steps=steps(module, {**python, "text": ""})))


@pytest.mark.parametrize(
    ("before", "level"),
    [
        (b"cat > train.py <<X\nimport os\nX\n", Level.WARN),
        (b"cp ../x/*.py .\n", Level.WARN),
        (b"git clone /repo r\n", Level.WARN),
        (b"./prepare.sh\n", Level.WARN),
        (b"# cp nothing\nnvidia-smi\n", Level.FAIL),
        (b"", Level.FAIL),
    ],
)
def test_a_program_that_the_script_may_make_is_no_failure(before: bytes, level: Level) -> None:
    script = b"#!/bin/bash\n" + before + b"python train.py | tee log\n"
    gone = {"report": {"problem": "No such file or directory"}, "kind": "python", "step": 1}
    answer = {**WELL, "steps": steps({**gone, "code": 0, "text": ""})}
    (one,) = [one for one in cluster_findings(answer, asked(script)) if one.check == "python"]
    assert one.level is level and one.text.startswith("train.py (line ")


def test_what_was_not_answered_is_no_failure() -> None:
    silent = list(cluster_findings({}, asked()))
    assert not failed(silent)
    assert {one.check for one in silent if one.level is Level.UNKNOWN} >= {
        "refusal", "directory", "interpreter", "modules",
    }  # fmt: skip


def test_quota() -> None:
    text = (
        "Disk quotas for user u (uid 1):\n  Filesystem blocks quota limit grace files quota limit\n"
        "/dev/a 1200* 1000 1500 6days 5 0 0 0\n/dev/b 1500* 1000 1500 none 5 0 0 0\n"
        "/dev/c 10 1000 1500 0 9* 5 8 none\n/dev/d 1 0 0 0 1 0 0 0\n"
    )
    assert list(over_quota(text)) == [("/dev/b", "space"), ("/dev/c", "files")]


def test_alternatives_are_of_the_same_name() -> None:
    assert alternatives("/m:\nopenmpi/4(L)\nopenmpi-x/5\nopenmpi/\nopenmpi/5 \n", "openmpi/9") == [
        "openmpi/4", "5",
    ]  # fmt: skip


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["rows", "kind", "step", "code", "text", "report", "missing", "name", "is",
                         "path", "used", "python", "errors", "problem", "directory"]),
        inner, max_size=5),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(sorted(WELL)), JSON, max_size=4))
def test_a_hostile_answer_is_bounded(answer: dict[str, object]) -> None:
    for one in cluster_findings(answer, asked()):
        assert len(one.text) < 3000 and len(one.hint) < 1000


@pytest.mark.parametrize("kind", ["module", "into", "cd", "python"])
def test_floods_are_cut(kind: str) -> None:
    report = {
        "missing": [{"name": "x" * 9999, "needed": True}] * 9999,
        "errors": ["e" * 9999] * 9999,
    }
    row = {"kind": kind, "step": 3, "code": 1, "text": "y" * 99999, "report": report}
    texts = found(steps=steps(*[row] * 3000), programs=[{"path": "p" * 9999, "is": "z"}] * 3000)
    assert len(texts) < 4000 and max(len(one.text) for one in texts) < 3000


def test_the_zip_is_small() -> None:
    assert len(script_check_zip.build().data) <= script_check_zip.BUDGET_BYTES
