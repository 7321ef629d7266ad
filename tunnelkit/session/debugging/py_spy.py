"""py-spy's binary: found on the laptop, kept on the nodes, run there beside the ranks.

It is an optional dependency (tunnelkit[native]). The binary is static, so that it runs on every
Linux of its architecture; a node gets it once for each digest.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import struct
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from tunnelkit.errors import MissingProgram

#: Names another binary, for nodes of another architecture or a laptop that runs no Linux.
VARIABLE = "TK_PY_SPY"
#: py-spy's switches: with frames of native code; for a process that stands, which py-spy can't
#: stop.
NATIVE, STANDS = "--native", "--nonblocking"
#: Machines by ELF's e_machine, as `uname -m` names them.
_MACHINES = {62: "x86_64", 183: "aarch64", 40: "armv7l", 3: "i686"}
_MOST_BYTES = 64 * 1024 * 1024
_UNUSED_DAYS = 60
_CAP_SYS_PTRACE = 19

#: $1 tk's directory, $2 file name, $3 sha256. A directory that another user owns is not used.
_PLACE = r"""
umask 077
d=$1/native
mkdir -p -- "$d" 2>/dev/null
own() { [ -O "$1" ] && [ ! -L "$1" ]; }
own "$d" && chmod 700 "$d" || { echo "file foreign"; exit 0; }
whole() {
  own "$1" && [ -f "$1" ] || return 1
  sum=$(sha256sum <"$1" || shasum -a 256 <"$1") || return 1
  [ "${sum%% *}" = "$2" ]
} 2>/dev/null
"""
_PROBE = (
    _PLACE
    + r"""
echo "machine $(uname -m)"
{ read -r yama </proc/sys/kernel/yama/ptrace_scope; } 2>/dev/null && echo "yama $yama"
while read -r key value; do [ "$key" = CapEff: ] && echo "cap $value"; done </proc/self/status
if whole "$d/$2" "$3"; then touch "$d/$2"; echo "file have"; else echo "file need"; fi
"""
)
#: $4: days after which an unused binary goes. stdin: the binary, by gzip.
_STORE = (
    _PLACE
    + r"""
trap 'rm -f "$d/.$2.$$"' EXIT
gzip -dc >"$d/.$2.$$" 2>/dev/null && whole "$d/.$2.$$" "$3" || { echo "file need"; exit 0; }
chmod 700 "$d/.$2.$$" && mv -f "$d/.$2.$$" "$d/$2" && echo "file have"
find "$d" -maxdepth 1 \( -name 'py-spy-*' -o -name '.py-spy-*' \) -mtime "+$4" \
  -exec rm -f {} + 2>/dev/null
"""
)
#: $1 pid, then py-spy's argv. The first line is the process's directory.
_DUMP = 'readlink "/proc/$1/cwd" || echo; shift; exec "$@" 2>&1'


@dataclass(frozen=True)
class PySpyBinary:
    """A binary for Linux. machine: the architecture, as `uname -m` names it."""

    data: bytes
    machine: str
    digest: str

    @property
    def file_name(self) -> str:
        """Its name on the nodes."""
        return f"py-spy-{self.digest[:32]}"

    def packed(self) -> bytes:
        """The binary by gzip. It takes half a second."""
        return gzip.compress(self.data, 6, mtime=0)

    def probe(self, base: str) -> list[str]:
        """Return the command that tells what the node is and has. base: tk's directory there."""
        return ["sh", "-c", _PROBE, "sh", base, self.file_name, self.digest]

    def store(self, base: str) -> list[str]:
        """Return the command that keeps the binary there; `packed` is its stdin."""
        words = [base, self.file_name, self.digest, str(_UNUSED_DAYS)]
        return ["sh", "-c", _STORE, "sh", *words]

    def dump(self, base: str, pid: int, switch: str = "") -> list[str]:
        """Return the command for one process. switch: NATIVE, STANDS, or none of them."""
        words = [f"{base}/native/{self.file_name}", "dump", "--json", "--pid", str(pid)]
        return ["sh", "-c", _DUMP, "sh", str(pid), *words, *([switch] if switch else [])]


@dataclass(frozen=True)
class NodeFacts:
    """A node, as `probe` and `store` report it. "" and 0 for what it does not say.

    file: have, need, or foreign (another user owns the directory). yama: the ptrace_scope.
    may_trace: it has CAP_SYS_PTRACE.
    """

    machine: str = ""
    file: str = ""
    yama: int = 0
    may_trace: bool = False


def read_facts(output: bytes) -> NodeFacts:
    """Read the lines of `probe` or `store`; others are left out."""
    found: dict[str, str] = {}
    for line in output[:10_000].decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(" ")
        if re.fullmatch(r"[A-Za-z0-9_]{1,32}", value):
            found[key] = value
    yama, capabilities = found.get("yama", ""), found.get("cap", "")
    hexadecimal = re.fullmatch(r"[0-9a-fA-F]{1,16}", capabilities)
    return NodeFacts(
        machine=found.get("machine", ""),
        file=found.get("file", ""),
        yama=int(yama) if re.fullmatch("[0-3]", yama) else 0,
        may_trace=bool(hexadecimal and int(capabilities, 16) >> _CAP_SYS_PTRACE & 1),
    )


def find_binary() -> Path:
    """Return the path of py-spy's binary on this machine. Raises MissingProgram."""
    from importlib import metadata  # it takes 15 ms

    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    try:
        files = metadata.distribution("py-spy").files or []
    except metadata.PackageNotFoundError:
        files = []
    else:
        places = [Path(str(one.locate())) for one in files if one.name == "py-spy"]
        for path in [*places, Path(sysconfig.get_path("scripts"), "py-spy")]:
            if path.is_file():
                return path.resolve()
    raise MissingProgram(
        "tk ranks --native needs py-spy, which is not installed beside tk",
        hint="pip install 'tunnelkit[native]'",
    )


def load_binary(path: Path) -> PySpyBinary:
    """Read the binary. Raises MissingProgram if it can't be read, or is none for Linux."""
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES)
    except OSError as error:
        raise MissingProgram(
            f"{path} can't be read", cause=error.strerror, hint="pip install 'tunnelkit[native]'"
        ) from None
    if data[:5] not in (b"\x7fELF\x01", b"\x7fELF\x02") or len(data) < 20:
        raise MissingProgram(
            f"{path} is no program for Linux, which the nodes run",
            hint=f"set {VARIABLE} to the py-spy of a wheel for Linux: https://pypi.org/project/py-spy",
        )
    order = ">" if data[5] == 2 else "<"
    (machine,) = struct.unpack(f"{order}H", data[18:20])
    name = _MACHINES.get(machine, f"machine {machine}")
    return PySpyBinary(data, name, hashlib.sha256(data).hexdigest())
