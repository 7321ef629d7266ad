"""`tk submit`: a user's script behaves as under sbatch, on the lab's real Slurm."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.support.submit_rig import Case, Submitter, differences
from tests.support.tkrig import Project, eventually, project_on
from tunnelkit.lab import LabInfo

pytestmark = pytest.mark.slow

#: How many scripts the comparison runs; by hand 500 and more.
SCRIPTS = int(os.environ.get("TK_SUBMIT_SCRIPTS", "20"))
BATCH = 20

BYTES = st.binary(max_size=40).map(lambda data: data.replace(b"\0", b"0"))
ARGS = st.lists(
    st.one_of(
        BYTES,
        st.sampled_from(
            [b"", b"-x", b"--", b"a b", b"$HOME", b"'", b'"', b"\n", b"\\", b"*", b"!!"]
        ),
    ),
    max_size=5,
)
NAMES = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,11}\Z").map(lambda name: f"X_{name}".encode())
#: Also names that no shell takes for a variable's.
ODD_NAMES = st.sampled_from([b"X.Y", b"BASH_FUNC_f%%", b"X-1", b"1X"])
ENVIRON = st.dictionaries(st.one_of(NAMES, ODD_NAMES), BYTES, max_size=5)
HEADERS = st.lists(
    st.sampled_from(
        [
            "#SBATCH --job-name=named",
            "#SBATCH -J other --comment=word",
            "#SBATCH -c 2",
            "#SBATCH -n 2",
            "#SBATCH -t 5",
            "#SBATCH --comment='two words'",
            "#SBATCH --requeue # why",
            "  # no option",
            "\t#SBATCH -c 3",
            "##SBATCH -c 3",
            "# SBATCH -c 3",
            "",
            "#PBS -N pbs",
            "#tk-0 script",
        ]
    ),
    max_size=5,
)
SIGNALS = st.sampled_from([1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 25, 31, 34, 50, 64])
#: After the last command: never run, but a part of the file.
TAILS = st.one_of(
    st.just(""),
    st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=60),
)


@dataclass
class Plan:
    """A script to be. end: an exit code, or minus a signal. late: an #SBATCH line too late."""

    kind: str
    end: int
    header: list[str]
    late: bool
    tail: str
    args: list[bytes]
    environ: dict[bytes, bytes] | None
    stdin: bytes | None
    crlf: bool
    name: str


PLANS = st.builds(
    Plan,
    kind=st.sampled_from(["sh", "bash", "sh -u", "python", "none"]),
    end=st.one_of(st.integers(0, 255), SIGNALS.map(lambda number: -number)),
    header=HEADERS,
    late=st.booleans(),
    tail=TAILS,
    args=ARGS,
    environ=st.none() | ENVIRON,
    stdin=st.none() | st.binary(max_size=100),
    crlf=st.integers(0, 15).map(lambda number: number == 7),
    name=st.sampled_from(["train.sh", "a b", "-x", "ü'\"$"]),
)


def case_of(rig: Submitter, plan: Plan, where: Path) -> Case:
    """The script of a plan; its files are in `where`."""
    kind, end = plan.kind, plan.end
    late = "#SBATCH -c 4\n" if plan.late else ""
    if kind == "python":
        how = f"os.kill(os.getpid(), {-end})" if end < 0 else f"os._exit({end})"
        first, body = "#!/usr/bin/env python3", rig.python(f"{late}{how}\n")
    else:
        how = f"kill -{-end} $$; sleep 5" if end < 0 else f"exit {end}"
        program = {"none": "/nowhere/sh", "bash": "/bin/bash"}.get(kind, f"/bin/{kind}")
        first, body = f"#!{program}", rig.sh(":\n" + late, f"{how}\n")
    header = "\n".join(plan.header)
    text = f"{first}\n{header}\n{body}".encode()
    # Python would parse it; nothing after a shell's exit is.
    text += b"" if kind == "python" else plan.tail.encode()
    if plan.crlf:
        text = text.replace(b"\n", b"\r\n", 2)
    node = f"node{len(plan.args) % 2 + 1}"  # both jobs on the same one
    options = ["-N", "1", "-w", node, "-o", "/dev/null", "--mem=10"]
    if plan.environ is not None:
        (where / "environ").write_bytes(
            b"".join(name + b"=" + value + b"\0" for name, value in plan.environ.items())
            + b"PATH="
            + os.environb[b"PATH"]
            + b"\0"
        )
        options.append(f"--export-file={where / 'environ'}")
    if plan.stdin is not None:
        (where / "stdin").write_bytes(plan.stdin)
        options.append(f"--input={where / 'stdin'}")
    return Case(text, options, plan.args, plan.crlf)


async def compare(rig: Submitter, plan_list: list[Plan]) -> list[str]:
    """Run each both ways; what was not the same."""
    few = asyncio.Semaphore(8)

    async def both(plan: Plan) -> tuple[Plan, list[str]]:
        async with few:
            case = case_of(rig, plan, rig.write(Case(b""), "unused").parent)
            path = rig.write(case, plan.name)
            jobs = [await rig.by_sbatch(case, path), await rig.by_tk(case, path)]
        assert bool(jobs[0]) is not case.refused, plan
        return plan, jobs

    pairs = await asyncio.gather(*(both(plan) for plan in plan_list))
    ended = await rig.ended([job for _, jobs in pairs for job in jobs if job])
    found = []
    for plan, (one, other) in pairs:
        if bool(one) is not bool(other):
            found.append(f"{plan}: {one!r} {other!r}")
        elif one:
            found += [f"{plan}: {text}" for text in differences(ended[one], ended[other])]
    return found


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.logins(10 * SCRIPTS + 50)
@settings(
    max_examples=max(1, SCRIPTS // BATCH),
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(plan_list=st.lists(PLANS, min_size=BATCH, max_size=BATCH))
def test_scripts_behave_as_under_sbatch(slurm_lab: LabInfo, plan_list: list[Plan]) -> None:
    assume(plan_list[0] != plan_list[1])  # hypothesis begins with the simplest of all

    async def main() -> None:
        async with project_on(slurm_lab) as project:
            assert "\n".join(await compare(Submitter(project), plan_list)) == ""

    asyncio.run(main())


@pytest.fixture
def rig(project: Project) -> Submitter:
    return Submitter(project)


#: Counts what it gets; ends when `go` is there.
COUNTS = """#!/bin/bash
for one in USR1 TERM HUP CONT; do trap "echo $one >>OUT/$SLURM_JOB_ID.got" $one; done
touch OUT/$SLURM_JOB_ID.ready
until [ -e OUT/go ]; do read -t 0.1 <> <(:); done
exit 9
"""


@pytest.mark.logins(60)
async def test_each_signal_comes_once(rig: Submitter) -> None:
    """To the batch script alone, and to its process group."""
    case = Case(COUNTS.replace("OUT", str(rig.out)).encode(), ["-o", "/dev/null", "-t", "5"])
    path = rig.write(case, "counts.sh")
    jobs = [await rig.by_sbatch(case, path), await rig.by_tk(case, path)]
    for job in jobs:
        await eventually(lambda job=job: (rig.out / f"{job}.ready").exists(), "it began")
        for number, words in enumerate(("-b -s USR1", "-f -s HUP", "-b -s TERM"), 1):
            await rig.at_login(["sh", "-c", f"scancel {words} {job}"])
            got = rig.out / f"{job}.got"
            await eventually(
                lambda got=got, number=number: (
                    got.exists() and len(got.read_text().split()) >= number
                ),
                f"{words} came",
            )
    await asyncio.sleep(0.5)  # one too many would have come by now
    (rig.out / "go").touch()
    ended = await rig.ended(jobs)
    one, other = (ended[job] for job in jobs)
    assert one.files[".got"] == other.files[".got"]
    assert one.fields["ExitCode"] == other.fields["ExitCode"] == "9:0"


@pytest.mark.logins(20)
async def test_the_warning_before_the_time_limit_arrives(rig: Submitter) -> None:
    # Slurm may send it up to 30 s early. A script that has not begun by then would never get it.
    text = "#!/bin/bash\n#SBATCH -t 1 --signal=B:USR1@20 -o /dev/null\ntrap 'exit 23' USR1\n"
    case = Case(f"{text}while :; do read -t 0.1 <> <(:); done\n".encode())
    path = rig.write(case, "warned.sh")
    jobs = [await rig.by_sbatch(case, path), await rig.by_tk(case, path)]
    ended = await rig.ended(jobs)
    assert [ended[job].fields["ExitCode"] for job in jobs] == ["23:0", "23:0"]


@pytest.mark.logins(20)
async def test_scancel_ends_it_as_under_sbatch(rig: Submitter) -> None:
    """With one TERM, though this Slurm signals each process of the job; and nothing is kept."""
    case = Case(COUNTS.replace("OUT", str(rig.out)).encode(), ["-o", "/dev/null"])
    path = rig.write(case, "counts.sh")
    jobs = [await rig.by_sbatch(case, path), await rig.by_tk(case, path, "--keep-on-failure")]
    for job in jobs:
        await eventually(lambda job=job: (rig.out / f"{job}.ready").exists(), "it began")
        await rig.at_login(["scancel", job])
    ended = await rig.ended(jobs, 30)
    one, other = (ended[job] for job in jobs)
    assert one.fields["JobState"] == other.fields["JobState"] == "CANCELLED"
    assert one.fields["ExitCode"] == other.fields["ExitCode"]
    # CONT and TERM come together, and a shell that was interrupted late may run either trap first.
    assert sorted(one.files[".got"].split()) == sorted(other.files[".got"].split())


@pytest.mark.logins(8)
async def test_with_a_session_and_without_one(rig: Submitter) -> None:
    """Through the session's connection: any bytes come through, and nobody authenticates."""
    case = Case(
        f"#!/bin/sh\n{rig.sh(after='exit 4')}".encode(), ["-o", "/dev/null"], [b"\xff\x80 '\n"]
    )
    path = rig.write(case, "train.sh")
    without = await rig.by_tk(case, path)
    await rig.project.up("node1")
    through = await rig.by_tk(case, path)
    ended = await rig.ended([without, through])
    assert [ended[job].fields["ExitCode"] for job in (without, through)] == ["4:0", "4:0"]
    assert ended[through].fields["WorkDir"] == str(rig.project.remote()).rstrip("/")
    assert ended[through].files[".argv"] == ended[without].files[".argv"]
    assert ended[through].files[".argv"].endswith(b"\xff\x80 '\n\0")


@pytest.mark.logins(8)
async def test_without_a_python_it_runs_all_the_same(rig: Submitter) -> None:
    """And says that it isn't kept."""
    log = rig.out / "log"
    case = Case(f"#!/bin/sh\n{rig.sh(after='exit 4')}".encode(), ["-o", str(log)], [b"\xff x"])
    path = rig.write(case, "train.sh")
    done = await rig.project.tk("submit", "--print", "--keep-on-failure", str(path))
    # A node without one: the names of all Pythons are of none.
    text = done.out.replace("python3", "nopython3").replace("platform-python", "nopython")
    bare = rig.write(Case(text.encode()), "train.sh")
    jobs = [
        # Each truncates its own log, whichever begins first.
        await rig.by_sbatch(Case(b"", ["-o", f"{log}.other"], case.args), path),
        await rig.by_sbatch(Case(b"", case.options, case.args), bare),
    ]
    ended = await rig.ended(jobs)
    one, other = (ended[job] for job in jobs)
    assert "not kept if it fails" in log.read_text()
    assert one.fields["ExitCode"] == other.fields["ExitCode"] == "4:0"
    assert one.files[".argv"] == other.files[".argv"]
    assert one.files[".self"] == other.files[".self"]


@pytest.mark.logins(4)
async def test_refusals_are_said_before_anything_is_sent(rig: Submitter) -> None:
    for text, words in (
        (b"", "is empty"),
        (b" \n", "only white space"),
        (b"echo\n", "does not begin with #!"),
        (b"#!/bin/sh\r\necho\r\n", "DOS line ends"),
        (b"#!/bin/sh\n\0", "NUL byte"),
        (b"#!/bin/sh\n#SBATCH -W\n", "--wait"),
    ):
        path = rig.write(Case(text), "bad.sh")
        done = await rig.project.tk("submit", str(path), code=2)
        assert words in done.err
        assert (await rig.by_sbatch(Case(text), path) == "") is (words != "--wait")
    done = await rig.project.tk("submit", "nowhere.sh", code=2)
    assert "is a file on this computer" in done.err
    done = await rig.project.tk(
        "submit", "-p", "nowhere", str(rig.write(Case(b"#!/bin/sh\n"), "a")), code=7
    )
    assert "partition" in done.err
