"""The command line of `scripts/bench`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from benchlib import (
    cli,
    f5,
    f5report,
    forwards,
    kube,
    kubereport,
    links,
    mirror,
    mirrorcase,
    mirrorreport,
    probe,
    ranks,
    ranksimrun,
    ranksreport,
    why,
    whytools,
)
from benchlib.disk import place
from benchlib.kuberig import pod_rig
from benchlib.measure import to_json
from benchlib.report import (
    Measures,
    best_of,
    machine,
    machine_lines,
    ratio_of,
    table,
    verdict,
)
from benchlib.rig import DIR_VARIABLE, rig
from tunnelkit.errors import TunnelkitError

_ROUNDS, _QUICK_ROUNDS = 10, 3
_RANKS, _QUICK_RANKS = 64, 8
_F5_RTTS_MS = (0.0, 60.0, 150.0)
_MIRROR_RTTS_MS = (0.0, 20.0, 60.0)


def main() -> int:
    """Run what was asked for and print it as Markdown."""
    args = _arguments()
    # As Ctrl-C does: the lab is taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    rounds = args.rounds or (_QUICK_ROUNDS if args.quick else _ROUNDS)
    try:
        with place(args.dir) as directory:
            os.environ[DIR_VARIABLE] = directory
            facts = machine(args.rtt, rounds, directory)
            print("\n".join(machine_lines(facts)), flush=True)
            results = _measure(args, rounds)
    except TunnelkitError as error:
        print(f"bench: {error.one_line()}", file=sys.stderr)
        return int(error.exit_code)
    except RuntimeError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    if args.json is not None:
        args.json.write_text(json.dumps({"machine": facts, "results": results}, indent=1) + "\n")
    return 0


def _measure(args: argparse.Namespace, rounds: int) -> dict[str, dict[str, object]]:
    results: dict[str, dict[str, object]] = {}
    here = [part for part in _PARTS if part not in _ELSEWHERE]
    for part in here if args.part == "all" else [args.part]:
        work = _PARTS[part]
        if work is None:
            results[part] = _mirror(args)
            continue
        measures, lines = work(args, rounds)
        print("\n".join(lines), flush=True)
        results[part] = to_json(measures)
    return results


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("part", choices=[*_PARTS, "all"])
    parser.add_argument(
        "--case", action="append", choices=list(mirror.CASES), help="mirror: only this (repeatable)"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help=f"rounds ({_ROUNDS})")
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK_ROUNDS} rounds")
    parser.add_argument(
        "--ranks", type=int, metavar="N", help=f"ranks: so many ({_RANKS}; quick: {_QUICK_RANKS})"
    )
    parser.add_argument(
        "--simulate",
        action="store_true",
        help=f"ranks: none, but recorded answers of {ranksimrun.SIMULATED}, or --ranks",
    )
    rtts = ", ".join(f"{rtt:g}" for rtt in _F5_RTTS_MS)
    parser.add_argument(
        "--rtt",
        type=float,
        metavar="MS",
        help=f"RTT to login (none; f5: {rtts}, all in one run; mirror: 0, 20, 60; ranks: 0, 60)",
    )
    parser.add_argument(
        "--dir",
        metavar="DIR",
        help="where laptop's and cluster's files are (/tmp; as root, where that is an ext4"
        " without a journal, an image with one in it); on /dev/shm no disk has a say",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value there")
    return parser.parse_args()


def _forwards(args: argparse.Namespace, rounds: int) -> tuple[Measures, list[str]]:
    with rig(args.rtt) as lab_rig:
        found = forwards.run(lab_rig, rounds)
    lines = table("forwards", found, digits=1)
    lines.append("")
    for measure in (forwards.DOWN, forwards.UP):
        ways = found[measure]
        best = best_of(ways, forwards.CHAINED, forwards.JUMP)
        fast = ratio_of(ways, forwards.FAST, best)
        wire = ratio_of(ways, forwards.WIRE, forwards.JUMP)
        better = "the better ssh way"
        lines.append(verdict(f"{measure}, tk forward / {better}", fast, 0.95, at_least=True))
        lines.append(verdict(f"{measure}, --wire / ssh -J -L", wire, 0.5, at_least=True))
    for measure in (forwards.ECHO, forwards.CONNECT):
        ways = found[measure]
        best = min((ways[forwards.CHAINED], ways[forwards.JUMP]), key=lambda one: one.median)
        # Times: the inverse, so that bigger is better here too.
        fast = 1 / ratio_of(ways, forwards.FAST, best)
        wire = 1 / ratio_of(ways, forwards.WIRE, forwards.JUMP)
        text = f"speed of {measure.rsplit(' ', 1)[0]}"
        lines.append(verdict(f"{text}, tk forward / the better", fast, 0.95, at_least=True))
        lines.append(verdict(f"{text}, --wire / ssh -J -L", wire, 0.5, at_least=True))
    lines.append("- plain ssh takes OpenSSH's own first cipher; tk puts AES-GCM first")
    return found, lines


def _links(args: argparse.Namespace, rounds: int) -> tuple[Measures, list[str]]:
    with rig(args.rtt) as lab_rig:
        found, commands = links.run(lab_rig, rounds)
    lines = [*table("links", found, digits=1), *table("commands", commands, digits=0), ""]
    for measure in (forwards.DOWN, forwards.UP):
        value = ratio_of(found[measure], links.PARAMIKO, links.SSHTUNNEL)
        what = f"{measure}, link paramiko / sshtunnel alone"
        lines.append(verdict(what, value, 1.0, at_least=True))
    value = ratio_of(found[links.MESSAGE], links.PARAMIKO, links.SSHTUNNEL)
    what = "time of a new connection with a message, link paramiko / sshtunnel alone"
    lines.append(verdict(what, value, 0.1, at_least=False))
    return {**found, **commands}, lines


def _f5(args: argparse.Namespace, rounds: int) -> tuple[Measures, list[str]]:
    rtts_ms = list(_F5_RTTS_MS) if args.rtt is None else [args.rtt]
    found = f5.Found()
    # One after the other: without a distance there is no proxy in the way.
    for through, distances in ((None, [0.0]), (0.0, [rtt for rtt in rtts_ms if rtt])):
        wanted = [rtt for rtt in distances if rtt in rtts_ms]
        if wanted:
            with rig(through) as lab_rig:
                f5.run(lab_rig, wanted, rounds, found)
    measures = {f"RTT {rtt:g} ms": rows for rtt, rows in found.rows.items()}
    torch = {f5.TORCH: found.torch} if found.torch is not None else {}
    return {**measures, **torch}, f5report.lines(found)


def _mirror(args: argparse.Namespace) -> dict[str, object]:
    sizes = mirrorcase.QUICK if args.quick else mirrorcase.Sizes()
    rtts_ms = list(_MIRROR_RTTS_MS) if args.rtt is None else [args.rtt]
    with rig(0.0) as lab_rig:
        found = mirror.run(lab_rig, rtts_ms, sizes, args.case or list(mirror.CASES))
    print("\n".join(mirrorreport.lines(found)), flush=True)
    return mirrorreport.to_json(found)


def _cli(args: argparse.Namespace, rounds: int) -> tuple[Measures, list[str]]:
    with rig(args.rtt) as lab_rig:
        status = cli.run_status(lab_rig, rounds)
        up = cli.run_up(lab_rig, min(rounds, 5))
    value = ratio_of(status[cli.WALL], cli.STATUS, cli.TYPER)
    last = verdict("tk status / import typer", value, 3.0, at_least=False)
    lines = [*table("commands", status, digits=0), "", last, *table("tk up", up, digits=2)]
    return {**status, **up}, lines


def _ranks(args: argparse.Namespace, rounds: int) -> tuple[Measures, list[str]]:
    if args.simulate:
        simulated = ranksimrun.run(args.ranks or ranksimrun.SIMULATED, rounds)
        return {"CPU s": simulated.cpu_s}, ranksimrun.lines(simulated)
    count = args.ranks or (_QUICK_RANKS if args.quick else _RANKS)
    with rig(0.0, ranks.cpus_of(count)) as lab_rig:
        found = ranks.run(lab_rig, count, rounds)
    return ranksreport.measures(found), ranksreport.lines(found)


def _probe(args: argparse.Namespace, rounds: int) -> tuple[Measures, list[str]]:
    found = probe.run(rounds)
    lines = table("probe", found, digits=0)
    many = found[probe.COST][probe.MANY].median / (10 * probe.SECONDS)
    lines += ["", verdict(f"% of a core, {probe.MANY}", many, 1.0, at_least=False)]
    return found, lines


def _why(args: argparse.Namespace, rounds: int) -> tuple[Measures, list[str]]:
    rtts = why.RTTS_MS if args.rtt is None else (args.rtt,)
    found, notes = why.run(rounds, rtts)
    lines = table("why", found, digits=2)
    for title, part in (("why", whytools.with_accounts), ("top", whytools.of_a_gpu)):
        more, lacking = part(rounds, rtts)
        if more:
            lines += table(title, more, digits=2)
        found |= more
        notes += lacking
    replayed = why.replayed(rounds)
    lines += table("a large cluster", replayed, digits=2)
    return found | replayed, [*lines, "", *notes]


def _kube(args: argparse.Namespace, rounds: int) -> tuple[Measures, list[str]]:
    with pod_rig() as pods:
        found = kube.run(pods, rounds, quick=args.quick)
    return kubereport.measures(found), kubereport.lines(found)


_Part = Callable[[argparse.Namespace, int], tuple[Measures, list[str]]]
_PARTS: dict[str, _Part | None] = {
    "forwards": _forwards,
    "links": _links,
    "f5": _f5,
    "cli": _cli,
    "mirror": None,
    "ranks": _ranks,
    "probe": _probe,
    "why": _why,
    "kube": _kube,
}
#: What "all" leaves out: it needs a real cluster.
_ELSEWHERE = ("kube",)

if __name__ == "__main__":
    sys.exit(main())
