"""What makes a process unfit to be forked, each seen in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def says(code: str, *words: str, python: str = sys.executable) -> str:
    """What a program prints that has our package on its path."""
    done = subprocess.run(
        [python, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


UNFIT = "from tunnelkit.debuggee.fork_safety import unfit\nprint(unfit())"


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("", "None"),
        ("import threading, time, _thread, socket", "None"),
        (
            "import threading, time\nfor name in 'ab':\n"
            " threading.Thread(target=time.sleep, args=(99,), name=name, daemon=True).start()",
            "an import has started a thread (a, b)",
        ),
        # One that has ended is none.
        ("import threading\nt = threading.Thread(target=int)\nt.start()\nt.join()", "None"),
        (
            "import _thread, time\nfor _ in range(2): _thread.start_new_thread(time.sleep, (99,))",
            "an import has started 2 thread(s) that a fork would lose",
        ),
        (
            "import sys, types\ntorch = sys.modules['torch'] = types.ModuleType('torch')\n"
            "torch.cuda = types.SimpleNamespace(is_initialized=lambda: True)",
            "an import has initialised CUDA",
        ),
        (
            "import sys, types\ntorch = sys.modules['torch'] = types.ModuleType('torch')\n"
            "torch.cuda = types.SimpleNamespace(is_initialized=lambda: False)",
            "None",
        ),
        ("import sys, types\nsys.modules['torch'] = types.ModuleType('torch')", "None"),
    ],
)
def test_unfit(before: str, why: str) -> None:
    assert says(f"{before}\n{UNFIT}") == why


def test_an_open_gpu_is_seen_by_its_device() -> None:
    """Whatever library opened it. The link of a descriptor is all that there is to see."""
    told = says(
        "import os\nread = os.readlink\n"
        "os.readlink = lambda path: '/dev/nvidia0' if path.endswith('/1') else read(path)\n" + UNFIT
    )
    assert told == "an import has opened the GPU (/dev/nvidia0)"


def test_threads_that_mind_forks_are_no_obstacle() -> None:
    """As OpenBLAS does: it ends its threads before a fork, and starts them when needed."""
    told = says(
        "import os, threading, _thread\n"
        "go, gone = threading.Event(), threading.Event()\n"
        "_thread.start_new_thread(lambda: (go.wait(), gone.set()), ())\n"
        "def before():\n"
        "    go.set()\n"
        "    while len(os.listdir('/proc/self/task')) > 1: pass\n"
        "os.register_at_fork(before=before)\n" + UNFIT
    )
    assert told == "None"


CHANGED = """\
import os, sys
sys.path.insert(0, sys.argv[1])
from tunnelkit.debuggee.fork_safety import Signatures
names = [name for name in sys.argv[2].split(",") if name]
for name in names: __import__(name)
signatures = Signatures.of_loaded(names)
assert signatures.changed() is None, signatures.changed()
os.chdir(sys.argv[1])
exec(sys.argv[3])
print(signatures.changed())
"""


@pytest.mark.parametrize(
    ("preload", "action", "why"),
    [
        ("one", "pass", "None"),
        ("one", "open('one.py', 'a').write('# more')", "one.py has changed since it was imported"),
        ("one", "os.utime('one.py', (1, 1))", "one.py has changed since it was imported"),
        ("one", "os.unlink('two.py')", "two.py has changed since it was imported"),
        ("one", "os.replace('three.py', 'one.py')", "one.py has changed since it was imported"),
        ("one", "open('three.py', 'a').write('# more')", "None"),
        # A package would be found before the file.
        (
            "one",
            "os.mkdir('one'); open('one/__init__.py', 'w')",
            "one is found elsewhere than when it was imported",
        ),
        ("package.part", "open('package/part.py', 'a').write('#')", "part.py has changed"),
        ("", "open('one.py', 'a').write('# more')", "None"),
    ],
)
def test_changed(tmp_path: Path, preload: str, action: str, why: str) -> None:
    (tmp_path / "one.py").write_text("import two\n")
    (tmp_path / "two.py").write_text("")
    (tmp_path / "three.py").write_text("import two\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "part.py").write_text("")
    assert why in says(CHANGED, str(tmp_path), preload, action)


@pytest.mark.parametrize("preload", ["", "one"])
def test_another_interpreter_behind_the_same_name_is_a_change(tmp_path: Path, preload: str) -> None:
    (tmp_path / "one.py").write_text("")
    python = tmp_path / "python"
    python.symlink_to(Path(sys.executable).resolve())
    other = tmp_path / "other"
    other.write_text("")
    action = "os.unlink('python'); os.symlink('other', 'python')"
    told = says(CHANGED, str(tmp_path), preload, action, python=str(python))
    assert told == f"{python} has changed since it was imported"
