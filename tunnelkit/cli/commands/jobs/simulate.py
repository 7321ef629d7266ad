"""`tk simulate`: a batch script checked on the cluster, then run here under its job's limits."""

from __future__ import annotations

from typing import Annotated

from tunnelkit.cli.completion import simulate_options as own
from tunnelkit.cli.completion.options import login_option, profile_option


def simulate(
    words: Annotated[list[str], own.simulate_words()],
    only_check: Annotated[bool, own.only_check_option()] = False,
    no_check: Annotated[bool, own.no_check_option()] = False,
    force: Annotated[bool, own.force_option()] = False,
    runner: Annotated[str | None, own.in_option()] = None,
    image: Annotated[str | None, own.image_option()] = None,
    stop: Annotated[str | None, own.for_option()] = None,
    mem: Annotated[str | None, own.mem_option()] = None,
    cpus: Annotated[int | None, own.cpus_option()] = None,
    time: Annotated[str | None, own.time_option()] = None,
    profile: Annotated[str | None, profile_option()] = None,
    login: Annotated[str | None, login_option()] = None,
    as_json: Annotated[bool, own.simulate_json_option()] = False,
) -> None:
    """Check a batch script on the cluster without an allocation, then run it here like its job.

    Checked: what the scheduler would refuse, output directory, interpreter, modules, imports,
    quota. The run has the job's memory, CPUs, time and variables, and ends with a verdict and the
    script's exit code. Other options before SCRIPT are the scheduler's.

    tk simulate train.sh --epochs 1
    tk simulate --only-check -p gpu train.sh
    tk simulate --for 60s --mem 8G train.sh
    tk simulate --cpus 2 -- python train.py
    """
    from tunnelkit.cli.views.jobs.simulate import simulate_line
    from tunnelkit.simulate.command_line import read_line

    simulate_line(read_line(words))
