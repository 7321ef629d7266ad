"""The patch of torch.distributed on a stand-in; on real torch: e2e/test_hook_ranks.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.debuggee.code_objects import code_of
from tunnelkit.debuggee import torch_timeouts

PACKAGES = {
    "torch/__init__.py": "import os\nif os.environ.get('BROKEN'): raise OSError('no CUDA')\n",
    "torch/_C/__init__.py": "",
    "torch/_C/_distributed_c10d.py": """\
from datetime import timedelta

class TCPStore:
    def __init__(self, host_name, port, world_size=None, timeout=timedelta(seconds=300)):
        "__init__(host_name, port, world_size, timeout)"
        self.timeout = timeout

class FileStore:
    def __init__(self, file_name, world_size=-1):
        "__init__(file_name, world_size)"
        self.timeout = timedelta(seconds=300)
    def set_timeout(self, timeout):
        self.timeout = timeout
""",
    "torch/distributed/__init__.py": (
        "from torch._C._distributed_c10d import FileStore, TCPStore\n"
        "from .constants import default_pg_timeout\n"
        "from .distributed_c10d import *\n"
        "from .distributed_c10d import _set_pg_timeout\n"
    ),
    "torch/distributed/constants.py": (
        "from datetime import timedelta\n"
        "default_pg_timeout = timedelta(minutes=30)\n"
        "default_pg_nccl_timeout = None\n"
    ),
    "torch/distributed/distributed_c10d.py": """\
from datetime import timedelta
from .constants import default_pg_timeout, default_pg_nccl_timeout

def init_process_group(backend=None, init_method=None, timeout=None, rank=-1):
    return timeout or default_pg_timeout

def barrier(group=None, async_op=False, device_ids=None, timeout=None):
    return timeout

def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    return timeout

def _set_pg_timeout(timeout, group=None):
    return timeout
""",
}
HOOK = "from tunnelkit.debuggee import torch_timeouts; torch_timeouts.install({given})\n"
USE = """\
import torch.distributed as dist
from datetime import timedelta
short, long = timedelta(seconds=2), timedelta(days=7)
"""


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    for name, text in PACKAGES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def run(torch: Path, code: str, **environ: str) -> tuple[str, str]:
    """(stdout, stderr) of a program that must end well."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(torch), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("when", ["before", "after"])
def test_timeouts_are_raised_whenever_torch_comes(torch: Path, when: str) -> None:
    hook = HOOK.format(given="rank=0")
    code = (hook + USE if when == "before" else USE + hook) + (
        "assert dist.distributed_c10d.default_pg_timeout == long\n"
        "assert dist.init_process_group('gloo', None, short) == long\n"
        "assert dist.init_process_group(timeout=short) == long\n"
        "assert dist.init_process_group() == long\n"
        "assert dist.init_process_group(timeout=timedelta(days=9)) == timedelta(days=9)\n"
        "assert dist.barrier(None, False, None, short) == long and dist.barrier() is None\n"
        "assert dist.monitored_barrier(timeout=2.0) == long.total_seconds()\n"
        "assert dist._set_pg_timeout(short) == long\n"
        "assert dist.TCPStore('h', 1).timeout == long\n"
        "assert dist.TCPStore('h', 1, 2, short).timeout == long\n"
        "assert dist.TCPStore('h', 1, timeout=short).timeout == long\n"
        "assert dist.TCPStore('h', 1, timeout=5.0).timeout == long.total_seconds()\n"
        "assert dist.FileStore('f', 2).timeout == long\n"
        "import os, sys\n"
        "assert os.environ['TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC'] == '604800'\n"
        "assert os.environ['TORCH_NCCL_ENABLE_MONITORING'] == '1'\n"
        "assert not any('tunnelkit' in type(one).__module__ for one in sys.meta_path)\n"
        "loaders = {type(sys.modules[name].__spec__.loader).__name__\n"
        "           for name in sys.modules if name.startswith('torch')}\n"
        "assert loaders == {'SourceFileLoader'}, loaders\n"
    )
    _, errors = run(torch, code, TORCH_NCCL_ENABLE_MONITORING="1")
    assert errors.count("\n") == 1
    assert errors.startswith("tk: collective timeouts are raised to 7 days while debugging; ")


@pytest.mark.parametrize(
    ("given", "call", "environ", "said"),
    [
        ("rank=0", "", {}, True),
        ("rank=1", "", {"RANK": "0"}, False),
        ("", "", {"RANK": "0"}, True),
        ("", "rank=0", {}, True),
        ("", "rank=1", {}, False),
        ("", "", {}, False),
    ],
)
def test_rank_0_says_it_once(
    torch: Path, given: str, call: str, environ: dict[str, str], said: bool
) -> None:
    code = HOOK.format(given=given) + USE + f"dist.init_process_group({call})\n" * 2
    assert run(torch, code, **environ)[1].count("7 days") == int(said)


def test_kept_means_untouched(torch: Path) -> None:
    code = (
        "import sys; before = list(sys.meta_path)\n"
        + HOOK.format(given="keep=True, rank=0")
        + "assert sys.meta_path == before\n"
        + USE
        + "assert dist.init_process_group(timeout=short) == short\n"
        "import os; assert not [name for name in os.environ if 'NCCL' in name]\n"
    )
    assert run(torch, code) == ("", "")


def test_a_torch_that_fails_fails_as_ever_and_may_be_tried_again(torch: Path) -> None:
    code = HOOK.format(given="rank=1") + (
        "import os\n"
        "try: import torch.distributed\n"
        "except OSError as error: print(error)\n"
        "del os.environ['BROKEN']\n" + USE + "assert dist.init_process_group() == long\n"
    )
    assert run(torch, code, BROKEN="1") == ("no CUDA\n", "")


def test_no_torch_at_all(tmp_path: Path) -> None:
    code = HOOK.format(given="") + (
        "try: import torch.distributed\nexcept ImportError as error: print(error.name)\n"
    )
    # -S: without the site-packages that may have one.
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "torch\n"


def test_a_torch_of_another_make_is_left_alone(torch: Path) -> None:
    (torch / "torch/distributed/distributed_c10d.py").write_text(
        "_set_pg_timeout = 3\ndef init_process_group(): return 'own'\n"
    )
    (torch / "torch/distributed/__init__.py").write_text("from .distributed_c10d import *\n")
    code = HOOK.format(given="rank=1") + USE + "print(dist.init_process_group())\n"
    out, errors = run(torch, code)
    assert out == "own\n"
    assert errors.count("\n") == 1 and "timeouts stay as they are" in errors


def test_no_debugger_stops_in_the_finders() -> None:
    called = [torch_timeouts._Finder, torch_timeouts._Loader, torch_timeouts._patch]
    found = [code for one in called for code in code_of(one)]
    assert {"find_spec", "imported", "exec_module", "create_module"} <= {
        code.co_name for code in found
    }
    assert {code.co_filename for code in found} == {"<frozen tunnelkit>"}


def test_no_line_of_tks_files_runs_while_torch_is_imported(torch: Path) -> None:
    """A debugger that steps into that import would stop there."""
    code = (
        HOOK.format(given="rank=0")
        + "import sys\nseen = set()\n"
        + "def trace(frame, event, arg):\n"
        + "    seen.add(frame.f_code.co_filename)\n"
        + "sys.settrace(trace)\n"
        + USE
        + "dist.init_process_group(timeout=short)\ndist.TCPStore('h', 1)\n"
        + "sys.settrace(None)\n"
        + "print([one for one in seen if 'tunnelkit' in one])\n"
    )
    assert run(torch, code)[0] == "['<frozen tunnelkit>']\n"
