"""Codes of jobs whose program, GPU or file system ended them."""

from __future__ import annotations

from tunnelkit.diagnosis.codes.code import Code
from tunnelkit.diagnosis.verdict import Actor, Stage


def _code(name: str, actor: Actor, meaning: str, found_by: str, remedy: str) -> Code:
    return Code(name, Stage.ENDED, actor, meaning, found_by, remedy, fatal=True)


_GPU = (
    _code(
        "gpu-lost",
        Actor.ADMINISTRATOR,
        "The driver has lost the GPU.",
        "Xid 79 or NVML's answer 15 in the black box, or the driver's line in the log.",
        "Another node (--exclude), and tell the administrator.",
    ),
    _code(
        "gpu-reset",
        Actor.ADMINISTRATOR,
        "The GPU needs a reset.",
        "Xid 62, 74, 119, 120 or 154, or NVML's answer 16.",
        "Another node (--exclude), and tell the administrator.",
    ),
    _code(
        "gpu-driver",
        Actor.ADMINISTRATOR,
        "The NVIDIA driver of the node does not work.",
        "NVML's answer 9 or 18, or nvidia-smi's line in the log.",
        "Another node (--exclude), and tell the administrator.",
    ),
    _code(
        "gpu-memory-error",
        Actor.ADMINISTRATOR,
        "The GPU's memory has an error.",
        "Xid 48, 63, 64, 94 or 95, or `uncorrectable ECC error` in the log.",
        "Run it again on another node (--exclude), and tell the administrator.",
    ),
    _code(
        "gpu-oom",
        Actor.PROGRAM,
        "The GPU's memory was full. This is not the node's memory: --mem does not help.",
        "The exception of the rank that failed first: torch's `CUDA out of memory. Tried to "
        "allocate`, or JAX's, TensorFlow's and CUDA's own words.",
        "A smaller batch; expandable_segments:True if much is reserved and not used; end another "
        "process on the GPU.",
    ),
    _code(
        "cuda-too-new",
        Actor.YOU,
        "The program's CUDA is newer than the node's driver.",
        "CUDA's or torch's words in the exception.",
        "Install the build for this driver.",
    ),
    _code(
        "cuda-no-kernel",
        Actor.YOU,
        "The program is not built for this kind of GPU.",
        "`no kernel image is available` in the exception.",
        "Another build, or another kind of GPU (--constraint).",
    ),
    _code(
        "cuda-cpu-build",
        Actor.YOU,
        "The environment has a build of torch for CPUs alone.",
        "`Torch not compiled with CUDA enabled` in the exception.",
        "Install the CUDA build in the environment that the job uses.",
    ),
    _code(
        "cuda-no-gpu",
        Actor.YOU,
        "The program found no GPU.",
        "CUDA's or torch's words in the exception; whether the job asked for one is looked at.",
        "Ask for one (--gpus); look at CUDA_VISIBLE_DEVICES.",
    ),
    _code(
        "driver-mismatch",
        Actor.ADMINISTRATOR,
        "The NVIDIA driver was updated, and the node not restarted.",
        "`Driver/library version mismatch` in the log.",
        "Another node (--exclude), and tell the administrator.",
    ),
    _code(
        "nccl-timeout",
        Actor.PROGRAM,
        "Not every rank arrived at a collective. The rank that reports it is the victim.",
        "NCCL's watchdog or DistBackendError in the log, and no other rank is known to have failed "
        "before.",
        "Look at the rank that did not arrive: `tk ranks`, or torch's flight record.",
    ),
)

_SYSTEM = (
    _code(
        "worker-killed",
        Actor.YOU,
        "A DataLoader's worker was killed, usually for memory.",
        "A line of torch in the log. Nobody counted memory kills.",
        "Fewer workers, or more --mem.",
    ),
    _code(
        "shm-full",
        Actor.YOU,
        "The node's /dev/shm is full.",
        "A DataLoader's worker got a bus error, or a file in /dev/shm found no space.",
        "Fewer workers, sharing by file_system, in a container --shm-size.",
    ),
    _code(
        "quota-full",
        Actor.YOU,
        "A disk quota is used up.",
        "Error 122 (EDQUOT), or 28 with a quota that is used up, in the exception or as the log's "
        "end; quota and `lfs quota` are asked now, and give the figures.",
        "Delete or move files, or ask for more.",
    ),
    _code(
        "disk-full",
        Actor.YOU,
        "A file system is full.",
        "Error 28 (ENOSPC) in the exception or as the log's end; the file system is asked now.",
        "Delete files, or write elsewhere.",
    ),
    _code(
        "inodes-full",
        Actor.YOU,
        "A file system has no inodes left: too many files.",
        "Error 28 (ENOSPC), and df shows that all inodes are used.",
        "Delete small files, or pack them into one.",
    ),
    _code(
        "fs-readonly",
        Actor.ADMINISTRATOR,
        "The file system is mounted read-only.",
        "Error 30 (EROFS) in the exception or as the log's end.",
        "Write elsewhere; ask the administrator why.",
    ),
    _code(
        "fs-stale",
        Actor.PROGRAM,
        "An open file was replaced or deleted on its server.",
        "Error 116 (ESTALE) in the exception or as the log's end.",
        "Open it again; do not replace files that a job reads.",
    ),
    _code(
        "fs-lost",
        Actor.ADMINISTRATOR,
        "A file system did not answer any more.",
        "Error 107 (ENOTCONN) or 5 (EIO) in the exception or as the log's end.",
        "Another node, and tell the administrator.",
    ),
    _code(
        "files-limit",
        Actor.PROGRAM,
        "Too many files were open, or watched.",
        "Error 24 (EMFILE), or the limit of inotify watches, in the exception or log.",
        "`ulimit -n`; file_system sharing for DataLoaders.",
    ),
    _code(
        "threads-limit",
        Actor.PROGRAM,
        "No further thread or process could be started.",
        "`can't start new thread`, fork's or pthread_create's words in the exception or log.",
        "OMP_NUM_THREADS, fewer workers; `ulimit -u` is the limit.",
    ),
)

_EXCEPTIONS = (
    _code(
        "exception",
        Actor.PROGRAM,
        "An exception ended the program.",
        "The traceback of the rank that failed first; in a chain the first exception that was not "
        "handled. Proven if it is the last that the program wrote, the exit code is 1, and no step "
        "had several tasks, or torchrun names that rank. At most likely: the last words of R, "
        "Julia, Fortran, MATLAB, Java, Rust and Go.",
        "F5 if the job is kept; else `tk loop --post-mortem` stops at it.",
    ),
    _code(
        "missing-module",
        Actor.YOU,
        "Python found no such module.",
        "ModuleNotFoundError is the exception that ended it.",
        "Install it in the environment that the job uses; `tk run which python` shows which.",
    ),
    _code(
        "missing-library",
        Actor.YOU,
        "A shared library is not on the node.",
        "The loader's words in the exception or log.",
        "Load its module, or set LD_LIBRARY_PATH.",
    ),
    _code(
        "glibc-too-old",
        Actor.YOU,
        "A program was built on a newer system than the node's.",
        "The loader's `GLIBC_... not found` or GLIBCXX.",
        "Build or install it on this cluster.",
    ),
)

_SIGNALS = (
    _code(
        "segfault",
        Actor.PROGRAM,
        "The program crashed: segmentation fault.",
        "Signal 11 by the process's parent or the scheduler; exit code 139, proven only if the "
        "shell's line in the log says it too; or forrtl's severe (174).",
        "PYTHONFAULTHANDLER=1 prints Python's stack at the crash.",
    ),
    _code(
        "abort",
        Actor.PROGRAM,
        "A C or C++ library aborted the program.",
        "Signal 6, or exit code 134, with the exception of C++ or the assertion that the log "
        "names; `std::bad_alloc` means memory.",
        "PYTHONFAULTHANDLER=1 prints Python's stack at the crash.",
    ),
    _code(
        "bus",
        Actor.PROGRAM,
        "The program crashed: bus error.",
        "Signal 7, or exit code 135. /dev/shm full, or a mapped file that was cut.",
        "Fewer workers; do not cut files that a job has mapped.",
    ),
    _code(
        "illegal-instruction",
        Actor.YOU,
        "The program has instructions that this CPU has not.",
        "Signal 4, or exit code 132.",
        "Build it on the node, or ask for another kind of node.",
    ),
    _code(
        "arithmetic-error",
        Actor.PROGRAM,
        "The program crashed: an integer divided by zero.",
        "Signal 8, or exit code 136.",
        "PYTHONFAULTHANDLER=1 prints Python's stack at the crash.",
    ),
    _code(
        "file-size",
        Actor.PROGRAM,
        "The program wrote a file larger than its limit.",
        "Signal 25, or exit code 153.",
        "`ulimit -f` is the limit.",
    ),
    _code(
        "cpu-time",
        Actor.PROGRAM,
        "The program used more CPU time than its soft limit.",
        "Signal 24, or exit code 152.",
        "`ulimit -t` is the limit.",
    ),
    _code(
        "cpu-limit",
        Actor.YOU,
        "The program used up the CPU time of its hard limit.",
        "KILL, and the black box saw that its CPU time was at the limit.",
        "`ulimit -Ht` is the limit; login hosts often have one.",
    ),
    _code(
        "oomd",
        Actor.YOU,
        "The service systemd-oomd killed the program: the node was short of memory.",
        "KILL, and the black box saw the sender.",
        "More --mem, or another node.",
    ),
    _code(
        "terminated",
        Actor.YOU,
        "TERM, INT or HUP ended the program: somebody asked it to end.",
        "The signal, or exit code 143, 130 or 129; the sender only where the black box saw it.",
        "The black box of a job of `tk up` keeps the sender.",
    ),
)

PROGRAM = (*_GPU, *_SYSTEM, *_EXCEPTIONS, *_SIGNALS)
