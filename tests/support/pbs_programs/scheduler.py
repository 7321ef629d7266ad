"""Which nodes a job gets, or why none."""

from __future__ import annotations

import time

from tests.support.pbs_programs.state import NODES, Job, State, ctime, fits


def place(state: State, job: Job) -> bool:
    """Give the job its nodes, or say why not."""
    count, need, host = job["want"]
    free = {name: dict(NODES[name]) for name in state.config["nodes"]}
    for other in state.jobs().values():
        for name in other.get("nodes", []) if other["job_state"] in "RE" else []:
            for what, amount in other["want"][1].items():
                if name in free:
                    free[name][what] -= amount
    known = [name for name in NODES if host in (None, name)]
    able = [name for name in known if fits(need, NODES[name])]
    nodes = [name for name in able if name in free and fits(need, free[name])][:count]
    if len(nodes) < count:
        comment = why_not(need, host, known, able, free, count)
        if job.get("comment") != comment and not state.torque:
            job["comment"] = comment
            state.save(job)
        return False
    stamp = time.strftime("%a %b %d at %H:%M")
    vnodes = "+".join(f"({name}:ncpus={need['ncpus']}:ngpus={need['ngpus']})" for name in nodes)
    job.update(job_state="R", nodes=nodes, stime=ctime(), started=time.time())
    job.update(exec_host=exec_host(state, nodes, need["ncpus"]), exec_vnode=vnodes)
    if not state.torque:
        job["comment"] = f"Job run at {stamp} on {vnodes}"
    state.save(job)
    return True


def why_not(
    need: dict[str, int], host: str | None, known: list[str], able: list[str],
    free: dict[str, dict[str, int]], count: int,
) -> str:  # fmt: skip
    lacks = "Insufficient amount of resource:"
    if not known:
        return f"Can Never Run: {lacks} host ({host} != {','.join(reversed(NODES))})"
    total = {name: sum(size[name] for size in NODES.values()) for name in need}
    if host is not None and not able:
        # Of one node it tells neither amounts, nor that it will never do.
        return f"Not Running: {lacks} {next(one for one in need if need[one] > NODES[host][one])}"
    if len(able) < count:
        if count > 1:
            return "Can Never Run: Not enough total nodes available"
        what = next(
            name for name in need if not any(size[name] >= need[name] for size in NODES.values())
        )
        return f"Can Never Run: {lacks} {what} (R: {need[what]} A: {total[what]} T: {total[what]})"
    if not any(name in free for name in able):
        return f"Not Running: {lacks} host "
    if count > 1:
        return "Not Running: Not enough free nodes available"
    what = next(
        name for name in need
        if not any(free[one][name] >= need[name] for one in able if one in free)
    )  # fmt: skip
    left = sum(size[what] for size in free.values())
    return f"Not Running: {lacks} {what} (R: {need[what]} A: {left} T: {total[what]})"


def exec_host(state: State, nodes: list[str], ncpus: int) -> str:
    if state.torque:
        return "+".join(f"{name}/0" if ncpus == 1 else f"{name}/0-{ncpus - 1}" for name in nodes)
    return "+".join(f"{name}/0" + (f"*{ncpus}" if ncpus > 1 else "") for name in nodes)
