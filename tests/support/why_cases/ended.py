"""Jobs that end in one way each, and the verdict that each has to get."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

RANKS = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 2:
    time.sleep(1)
    {}["label"]
dist.all_reduce(torch.ones(1))
dist.barrier()
"""
COLLATE = """
def collate(row):
    return row["label"]
collate({})
"""
CUDA_OOM = """
class OutOfMemoryError(RuntimeError): pass
OutOfMemoryError.__module__ = "torch"
raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity "
    "of 39.39 GiB of which 1.75 GiB is free. Process 77 has 30.10 GiB memory in use.")
"""
FULL = """
with open("{small}/x.bin", "wb", buffering=0) as file:
    for part in range(16):
        file.write(bytes(1 << 20))
"""
HANDLED = """
import sys, traceback
try:
    {}["a"]
except KeyError:
    traceback.print_exc()
"""

AGAIN = """try:
    {}[1]
except KeyError as error:
    raise ValueError("bad row") from error
"""
OPTIONS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
parser.parse_args()
"""
RANK_1 = """
import os, time
if os.environ["SLURM_PROCID"] == "1":
    {}["label"]
time.sleep(2)
"""
NCCL = """
import os, sys
print("[rank3]:[E1126 10:00:00.123456789 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught "
      "collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
      "Timeout(ms)=600000) ran for 600029 milliseconds before timing out.", file=sys.stderr)
os.abort()
"""
#: Programs beside the scripts.
FILES = {
    "collate": COLLATE,
    "cuda_oom": CUDA_OOM,
    "ranks": RANKS,
    "handled": HANDLED,
    "again": AGAIN,
    "options": OPTIONS,
    "rank1": RANK_1,
    "nccl": NCCL,
}


@dataclass(frozen=True)
class Case:
    """script: sh, where {py} is a Python and {dir} the test's directory. code, certainty: of the
    first verdict. words: in its sentence. also: the second verdict's code."""

    script: str
    code: str
    certainty: str
    words: str = ""
    also: str = ""
    first_line: str = "#!/bin/bash"
    options: tuple[str, ...] = ()


CASES: dict[str, Case] = {
    "exception": Case("{py} {dir}/collate.py", "exception", "proven",
                      "KeyError: 'label' at collate.py:3 in collate"),
    "exit code": Case("echo working; exit 7", "exit-unknown", "unknown", "exit code 7"),
    "no directory for the log": Case("echo x", "launch-output", "proven",
                                     options=("-o", "{dir}/absent/%j.log")),
    "bad interpreter": Case("x", "launch-interpreter", "proven", "/no/such/python",
                            first_line="#!/no/such/python"),
    "command not found": Case("module load x; tranline --x", "not-found", "proven", "tranline"),
    "not executable": Case("echo > {dir}/plain; {dir}/plain", "not-executable", "proven"),
    "no such program": Case("{py} {dir}/absent.py", "not-found", "proven", "absent.py"),
    "segfault": Case("{py} -X faulthandler -c 'import ctypes; ctypes.string_at(0)'", "segfault",
                     "proven", "segmentation fault, at <string>:1"),
    "abort": Case("{py} -c 'import os; os.abort()'", "abort", "proven"),
    "killed by itself": Case("kill -KILL $$", "killed-unknown", "unknown"),
    "killed child": Case("{py} -c 'import os; os.kill(os.getpid(), 9)'", "killed-unknown",
                         "unknown"),
    "hidden step": Case("srun -n1 sh -c 'exit 3'\necho done\nexit 0", "step-failed", "likely",
                        "Exited with exit code 3"),
    "hidden exception": Case("srun -n1 {py} {dir}/collate.py\nexit 0", "exception", "proven",
                             "KeyError: 'label'", also="step-failed"),
    "memory refused": Case("ulimit -v 2000000\n{py} -c 'bytearray(10 << 30)'", "exception",
                           "proven", "MemoryError"),
    "GPU memory": Case("{py} {dir}/cuda_oom.py", "gpu-oom", "proven", "2.50 GiB"),
    "missing module": Case("{py} -c 'import notthere'", "missing-module", "proven", "notthere"),
    "time limit": Case("echo step 1/10\nsleep 300", "timeout", "proven"),
    "cancelled": Case("sleep 300", "cancelled", "proven"),
    "healthy": Case("echo fine", "ok", "proven"),
    "healthy, with a handled exception": Case(
        "{py} {dir}/handled.py\nfor i in $(seq 40); do echo step $i; done", "ok", "proven"),
    "healthy, ends with a handled exception": Case("{py} {dir}/handled.py", "ok", "likely",
                                                   "its log shows: KeyError: 'a'"),
    "healthy, ends its own helper": Case(
        "srun -n1 sh -c 'touch {dir}/begun; sleep 300' &\n"
        "until [ -e {dir}/begun ]; do sleep 0.1; done\nkill $!; wait; exit 0", "ok", "proven"),
    "handled exception, then a code": Case(
        "{py} {dir}/handled.py\nfor i in $(seq 40); do echo step $i; done; exit 5",
        "exit-unknown", "unknown"),
}  # fmt: skip
if importlib.util.find_spec("torch") is not None:
    CASES["torchrun"] = Case(
        "{py} -m torch.distributed.run --standalone --nproc-per-node 4 {dir}/ranks.py",
        "exception", "proven", "KeyError: 'label' at ranks.py:6 (rank 2)", options=("-n", "4"),
    )  # fmt: skip

CASES |= {
    # -- Python
    "no data file": Case("cd /; {py} -c 'open(\"data.csv\")'", "exception", "proven",
                         "FileNotFoundError"),
    "a directory for a file": Case("{py} -c 'open(\"{dir}\", \"w\")'", "exception", "proven",
                                   "IsADirectoryError"),
    "raised again": Case("{py} {dir}/again.py", "exception", "proven", "KeyError: 1 at again.py:2"),
    "a failed assertion": Case("{py} -c 'assert 1 == 2, \"shapes differ\"'", "exception", "proven",
                               "AssertionError: shapes differ"),
    "too deep a recursion": Case("{py} -c 'def f(): f()\nf()'", "exception", "proven",
                                 "RecursionError"),
    "a name that a module lacks": Case("{py} -c 'from json import nothere'", "exception",
                                       "proven", "ImportError: cannot import name 'nothere'"),
    "no such module to run": Case("{py} -m nosuchmodule", "missing-module", "likely",
                                  "nosuchmodule"),
    "arguments that are refused": Case("{py} {dir}/options.py", "bad-arguments", "likely", "--lr"),
    "a message and a code": Case("{py} -c 'import sys; sys.exit(\"no GPU is free\")'",
                                 "exit-unknown", "unknown", "exit code 1"),
    "an exception behind a pipe": Case("{py} {dir}/collate.py | cat; exit ${PIPESTATUS[0]}",
                                       "exception", "proven", "KeyError: 'label'"),
    "a refused connection": Case("{py} -c 'import socket; socket.create_connection("
                                 "(\"127.0.0.1\", 9))'", "exception", "proven",
                                 "ConnectionRefusedError"),
    "one rank of four": Case("srun -n4 {py} {dir}/rank1.py", "exception", "likely",
                             "KeyError: 'label'", options=("-n", "4")),
    # -- signals and limits
    "segfault without a stack": Case("{py} -c 'import ctypes; ctypes.string_at(0)'", "segfault",
                                     "proven"),
    "segfault of a step": Case("srun -n2 sh -c 'kill -SEGV $$'", "segfault", "proven",
                               options=("-n", "2")),
    "bus error": Case("{py} -c 'import os; os.kill(os.getpid(), 7)'", "bus", "proven"),
    "illegal instruction": Case("{py} -c 'import os; os.kill(os.getpid(), 4)'",
                                "illegal-instruction", "proven", "most often"),
    "arithmetic error": Case("{py} -c 'import os; os.kill(os.getpid(), 8)'", "arithmetic-error",
                             "proven", "most often"),
    "a file over its limit": Case("ulimit -f 10; dd if=/dev/zero of={dir}/big bs=1k count=100",
                                  "file-size", "likely"),
    "no CPU time left": Case("ulimit -t 1; {py} -c 'while True: pass'", "killed-unknown",
                             "unknown"),
    "TERM by itself": Case("{py} -c 'import os; os.kill(os.getpid(), 15)'", "terminated",
                           "unknown"),
    "a child is killed, its script gives a code": Case(
        "bash -c 'kill -9 $$'; echo after; exit 9", "killed-unknown", "unknown",
        "a process of it was killed"),
    "a time limit of its own": Case("timeout 1 sleep 100", "exit-unknown", "unknown", "124"),
    # -- the script
    "a syntax error": Case("if then\necho", "script-error", "likely", "syntax error near"),
    "no such directory": Case("cd /no/such/dir && {py} x.py", "script-error", "likely",
                              "line 2 of the script: cd: /no/such/dir"),
    "an unset variable": Case("set -u; echo $NOPE", "script-error", "likely", "unbound variable"),
    "line ends of Windows": Case(
        "printf '#!/usr/bin/env python3\\r\\nprint(1)\\r\\n' > {dir}/crlf.py; "
        "chmod +x {dir}/crlf.py; {dir}/crlf.py", "not-found", "likely", "Windows (CRLF)"),
    "not a program": Case("printf 'x\\0\\1' > {dir}/bin; chmod +x {dir}/bin; {dir}/bin",
                          "not-executable", "proven"),
    "set -e without a word": Case("set -e; false; echo no", "exit-unknown", "unknown"),
    "more than the job has": Case("srun -n 99 hostname", "step-refused", "likely",
                                  "More processors requested"),
    # -- words of other programs, as they print them
    "no environment module": Case(
        "echo 'Lmod has detected the following error: The following module(s) are unknown: "
        "\"cuda/99\"' >&2; exit 1", "environment-module", "likely", "cuda/99"),
    "conda is not set up": Case(
        "echo \"CommandNotFoundError: Your shell has not been properly configured to use 'conda "
        "activate'.\" >&2; exit 1", "conda-not-set-up", "likely"),
    "a rank gives up": Case(
        "echo 'MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD with errorcode 7.'; "
        "exit 7", "mpi-abort", "likely", "rank 3"),
    "too old a glibc": Case(
        "echo \"./prog: /lib/libc.so.6: version \\`GLIBC_2.99' not found (required by ./prog)\" "
        ">&2; exit 1", "glibc-too-old", "likely", "GLIBC_2.99"),
    "a library is missing": Case(
        "echo './prog: error while loading shared libraries: libcudart.so.11.0: cannot open shared "
        "object file: No such file or directory' >&2; exit 127", "missing-library", "likely"),
    "a watchdog of NCCL": Case("{py} {dir}/nccl.py", "nccl-timeout", "likely", "number 42"),
    # -- well, though the log looks bad
    "healthy, an exception in the background": Case("{py} {dir}/collate.py &\nwait; exit 0", "ok",
                                                    "likely", "its log shows: KeyError"),
    "healthy, TERM is handled": Case("trap 'exit 0' TERM; kill -TERM $$; sleep 5", "ok", "proven"),
    "healthy, speaks of errors": Case("echo 'ERROR: 0 errors, loss nan'; exit 0", "ok", "proven"),
}  # fmt: skip
