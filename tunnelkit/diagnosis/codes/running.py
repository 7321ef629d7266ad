"""Codes of jobs that run: slow ones, and those where nothing was found."""

from __future__ import annotations

from tunnelkit.diagnosis.codes.code import Code
from tunnelkit.diagnosis.verdict import Actor, Stage

RUNNING = (
    Code(
        "at-breakpoint",
        Stage.RUNNING,
        Actor.YOU,
        "A debugger holds the program: at a breakpoint, a step, a pause or an uncaught exception. "
        "It does not hang.",
        "The session's debugger says so (proven); or py-spy finds the main thread in the "
        "debugger's own waiting function (likely). Where neither could be asked, and debugpy is "
        "loaded in a process that stands still, it is not known whether that hangs (unknown).",
        "Let it go on in the editor or console that debugs it: F5, `tk console`, `tk loop`.",
    ),
    Code(
        "waits-for-editor",
        Stage.RUNNING,
        Actor.YOU,
        "The program waits until an editor connects, and only then goes on: a loop of tk that is "
        "armed, `debugpy --wait-for-client`, `debugpy.wait_for_client()`. It does not hang.",
        "The session's debugger says so (proven); or py-spy finds the main thread in debugpy's "
        "waiting function, or debugpy was started to wait and nobody has connected to its port "
        "(both: likely). Nothing else of the job runs.",
        "Press F5, or connect the editor; a program that is to run without one needs no "
        "`--wait-for-client`.",
    ),
    Code(
        "waits-for-input",
        Stage.RUNNING,
        Actor.YOU,
        "The program waits for a line of input: a prompt of pdb, `input()`, a read of stdin.",
        "Nothing of the job runs, and a main thread is in read(2) of descriptor 0 or waits for it "
        "alone in select(2), as readline does; no other program of the job writes it.",
        "Answer it where it was started; give a job that is to read nothing `</dev/null`.",
    ),
    Code(
        "stopped",
        Stage.RUNNING,
        Actor.YOU,
        "Processes of the job are stopped: by a signal, a debugger, a frozen cgroup, or because "
        "the scheduler has suspended the job.",
        "The main thread is in state T in 90 % of the samples or more, and no other program of the "
        "job (or of its rank) runs; or the cgroup is frozen; or the scheduler's state is SUSPENDED "
        "(PBS: S or U).",
        "`kill -CONT PID` on the node; or end the debugger. If the scheduler suspended it, ask the "
        "administrator.",
    ),
    Code(
        "storage-gone",
        Stage.RUNNING,
        Actor.ADMINISTRATOR,
        "A file system that the job uses does not answer.",
        "`statvfs` gave no answer in 3 s, and nothing of the job runs, or a thread of a process "
        "with files there was in the kernel (state D) in 90 % of the samples or more (proven); or "
        "such a thread was while a file system of its process completed no operation (likely). A "
        "slow file system still completes some: that is `storage-slow`. If the job goes on without "
        "the answer, the verdict says so (likely).",
        "Tell the administrator. A program that stands still goes on once the storage answers. "
        "Else end the job and leave that node out.",
    ),
    Code(
        "storage-full",
        Stage.RUNNING,
        Actor.YOU,
        "The job runs, and can't write any more: a file system is full, or a quota is used up.",
        "`statvfs` on the node finds no room or no inodes where the job has a file open for "
        "writing; or df, quota or `lfs quota` on the login host find none where its log goes. "
        "Less than 4 MB or 10 files left of a quota is likely. A full file system that the job "
        "only reads is no finding, nor is a soft limit whose time of grace runs.",
        "Delete or move files, or write elsewhere. A quota may also be one of a group or project.",
    ),
    Code(
        "hang",
        Stage.RUNNING,
        Actor.PROGRAM,
        "Nothing of the job moves: its programs wait for a lock, a pipe or a peer.",
        "All threads together used less than 1 % of a core, no GPU was busy, nothing was read or "
        "written, no log grew, and a main thread waits in futex, a pipe or a socket without a "
        "limit of time. Programs that wait in sleep, accept or epoll are not counted: that is how "
        "servers wait.",
        "The verdict names the line where a Python program waits, if the session's debugger or "
        "py-spy (on the node, or `pip install 'tunnelkit[native]'` here) could read its stack. "
        "Else `tk ranks --native` in a session, or py-spy dump on the node.",
    ),
    Code(
        "throttled",
        Stage.RUNNING,
        Actor.YOU,
        "The kernel holds the job back, because its cgroup has used up its CPU quota.",
        "`nr_throttled` rose by more than 10 % of nr_periods in the window. Threads then wait for "
        "a CPU as with too many threads, but no CPU is busy.",
        "Ask for more CPUs, or start fewer threads.",
    ),
    Code(
        "too-many-threads",
        Stage.RUNNING,
        Actor.YOU,
        "More threads want a CPU than the job may use.",
        "Threads of the job wait for a CPU for more than 1 s in each second, and the job itself "
        "fills the CPUs that it is allowed.",
        "As many threads as CPUs: OMP_NUM_THREADS, num_workers, len(os.sched_getaffinity(0)). If "
        "fewer CPUs are allowed than were asked for: srun --cpus-per-task, --cpu-bind=none.",
    ),
    Code(
        "neighbours",
        Stage.RUNNING,
        Actor.ADMINISTRATOR,
        "Processes that are not the job's use its CPUs.",
        "Its threads wait for a CPU in 20 % of the time or more, it does not fill its CPUs, and "
        "these CPUs are busy.",
        "Ask for a node or for CPUs of its own (--exclusive), or tell the administrator whose "
        "processes they are.",
    ),
    Code(
        "swap",
        Stage.RUNNING,
        Actor.YOU,
        "The job waits for memory: it swaps, or the kernel takes pages back that it needs.",
        "VmSwap grows, or major page faults are over 100/s with swap in use (both: proven); or it "
        "is at its memory limit, and page faults or memory.pressure show that this costs time.",
        "Ask for more memory, or use less: smaller batches, fewer workers.",
    ),
    Code(
        "storage-slow",
        Stage.RUNNING,
        Actor.YOU,
        "The job waits for a file system that works, but too slowly for it.",
        "Main or loader threads are in the kernel (state D) in 30 % of the samples or more. The "
        "milliseconds of an operation are from mountstats, the calls from /proc/PID/io.",
        "Copy the data to the node's own disk; pack small files; load ahead with more workers.",
    ),
    Code(
        "gpu-unused",
        Stage.RUNNING,
        Actor.PROGRAM,
        "The job has a GPU, and its program does not use it.",
        "The GPU was 0 % busy in the whole window, no process of the job is on it, and the CPUs "
        "work. A program that still prepares its data looks the same.",
        "Check that the framework was built for GPUs (torch.version.cuda), and that model and data "
        "are moved there. Else ask for no GPU.",
    ),
    Code(
        "gpu-waits-for-data",
        Stage.RUNNING,
        Actor.PROGRAM,
        "The GPU is idle most of the time, because its data come too late.",
        "The GPU is less than 50 % busy, and the process that feeds it waits in more than half of "
        "the samples, while its workers compute or wait for storage.",
        "More loader workers where CPUs are idle; more CPUs for each GPU; data on a faster disk.",
    ),
    Code(
        "one-thread",
        Stage.RUNNING,
        Actor.PROGRAM,
        "One thread does all the work, or threads take turns (Python's GIL).",
        "One thread runs in more than 90 % of the time and no other one does; or several Python "
        "threads add up to one CPU. Only if the job has more CPUs, or a GPU that is under 50 %.",
        "See which function it is (py-spy top), and spread it over processes; or ask for 1 CPU.",
    ),
    Code(
        "gpu-clocks",
        Stage.RUNNING,
        Actor.ADMINISTRATOR,
        "Heat or power holds the GPU's clock down.",
        "NVML's clock reasons 0x8, 0x20, 0x40 or 0x80 in more than 20 % of the samples. A GPU at "
        "its power cap (0x4), or idle, is no fault.",
        "Take another node, and tell the administrator.",
    ),
    Code(
        "gpu-memory",
        Stage.RUNNING,
        Actor.PROGRAM,
        "The GPU's memory is nearly full. That is a risk; whether it costs time can't be seen "
        "from outside.",
        "More than 95 % of the memory is in use, and nothing else was found.",
        "A smaller batch, if the program fails or runs slower with time.",
    ),
    Code(
        "straggler",
        Stage.RUNNING,
        Actor.PROGRAM,
        "All other ranks wait for one.",
        "Of at least three ranks one differs: the others' GPUs are busy at less than half of its "
        "power, or it computes while they wait, or it lacks a CPU and they do not. A second "
        "verdict says what was found for that rank alone.",
        "Give that rank what it lacks; else share the work evenly, or leave its node out.",
    ),
    Code(
        "nothing",
        Stage.RUNNING,
        Actor.NOBODY,
        "Nothing that can be seen from outside holds the job back.",
        "All questions were asked of the samples, and none had a finding.",
        "A profiler shows where its time goes: py-spy top, or the framework's own.",
    ),
    Code(
        "running",
        Stage.RUNNING,
        Actor.NOBODY,
        "The job runs. Its processes were not looked at.",
        "The scheduler's state; no node could be sampled, or `--sample 0` was given.",
        "`tk why JOB --sample 10`.",
    ),
)
