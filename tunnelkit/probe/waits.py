"""The reason why a thread waits, in one word: by its system call, else by the kernel's function."""

import os

#: Numbers of system calls by machine; see asm/unistd.h.
_CALLS = {
    "x86_64": {
        0: "read", 17: "read", 19: "read", 7: "poll", 271: "poll", 23: "poll", 270: "poll",
        232: "poll", 281: "poll", 441: "poll", 202: "futex", 35: "sleep", 230: "sleep",
        61: "child", 247: "child", 43: "accept", 288: "accept", 45: "receive", 47: "receive",
        1: "write", 18: "write", 20: "write", 74: "write", 75: "write", 34: "pause", 130: "pause",
        128: "pause", 22: "read",
    },
    "aarch64": {
        63: "read", 65: "read", 67: "read", 73: "poll", 72: "poll", 22: "poll", 441: "poll",
        98: "futex", 101: "sleep", 115: "sleep", 260: "child", 95: "child", 202: "accept",
        242: "accept", 207: "receive", 212: "receive", 64: "write", 66: "write", 68: "write",
        82: "write", 83: "write", 133: "pause", 137: "pause",
    },
}  # fmt: skip
#: Position of the argument that limits the wait; it has none if that is 0 (poll: negative).
_LIMIT_AT = {
    "x86_64": {202: 3, 7: 2, 232: 3, 281: 3, 271: 2, 23: 4, 270: 4},
    "aarch64": {98: 3, 22: 3, 73: 2, 72: 4},
}
#: Beginnings of the kernel's functions, where system calls can't be read.
_FUNCTIONS = (
    ("futex", "futex"), ("hrtimer_nanosleep", "sleep"), ("do_nanosleep", "sleep"),
    ("pipe_", "pipe"), ("anon_pipe", "pipe"), ("fifo_", "pipe"), ("do_wait", "child"),
    ("do_epoll", "poll"), ("ep_poll", "poll"), ("poll_schedule", "poll"), ("do_sys_poll", "poll"),
    ("do_select", "poll"), ("inet_csk_accept", "accept"), ("unix_accept", "accept"),
    ("wait_woken", "receive"), ("sk_wait_data", "receive"), ("unix_stream_", "receive"),
    ("__skb_wait", "receive"), ("n_tty", "terminal"), ("do_sigtimed", "pause"),
    ("do_signal_stop", "stopped"), ("ptrace_stop", "stopped"),
    ("rpc_wait", "nfs"), ("nfs", "nfs"), ("cl_sync_io", "lustre"), ("ll_", "lustre"),
    ("fuse_", "fuse"), ("request_wait_answer", "fuse"), ("nv", "gpu-driver"), ("uvm", "gpu-driver"),
    ("io_schedule", "disk"), ("folio_wait", "disk"), ("wait_on_page", "disk"),
    ("blk_", "disk"), ("jbd2", "disk"), ("do_get_write_access", "disk"), ("xfs_", "disk"),
    ("percpu_rwsem_wait", "frozen"), ("__percpu_down_read", "frozen"), ("sb_start", "frozen"),
    ("swap", "swap"),
)  # fmt: skip
_MACHINE = os.uname().machine
#: read(2), whose first argument is the descriptor.
_READ = {"x86_64": 0, "aarch64": 63}
#: select(2) and pselect6(2): with 1 as their first argument they wait for descriptor 0 alone, as
#: readline does.
_SELECTS = {"x86_64": (23, 270), "aarch64": (72,)}


def by_function(name: str) -> str:
    """Return the word for a function of the kernel (`wchan`); "" for an unknown or hidden one."""
    return next((word for begin, word in _FUNCTIONS if name.startswith(begin)), "")


def by_call(text: str, machine: str = _MACHINE) -> str:
    """Return the word for /proc/PID/task/TID/syscall; with `-timed` if the wait has a limit.
    `stdin`: a read of descriptor 0, or a wait for it alone."""
    words = text.split()
    if len(words) < 7 or not words[0].isdigit():
        return ""
    number = int(words[0])
    word = _CALLS.get(machine, {}).get(number, "")
    if number == _READ.get(machine) and words[1] == "0x0":
        return "stdin"
    at = _LIMIT_AT.get(machine, {}).get(number)
    if not word or at is None:
        return word
    try:
        limit = int(words[1 + at], 16)
    except (ValueError, IndexError):
        return word
    if not limit and number in _SELECTS.get(machine, ()) and words[1] == "0x1":
        return "stdin"
    # poll, epoll: milliseconds as a C int. Others: the address of a time.
    limited = limit & 0xFFFFFFFF < 0x80000000 if _in_ms(number, machine) else limit != 0
    return f"{word}-timed" if limited else word


def _in_ms(number: int, machine: str) -> bool:
    return number in ({7, 232, 281} if machine == "x86_64" else {22})
