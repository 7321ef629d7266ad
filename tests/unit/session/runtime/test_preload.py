"""What a session imports late: nothing is left to be imported after an upgrade of tk."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunnelkit.session.runtime.preload import MODULES, preload

_PACKAGE = Path(__file__).parents[4] / "tunnelkit"
#: Imported by other processes than a session, with packages that most people have not, or at the
#: start of a session in a pod.
_ELSEWHERE = (
    "tunnelkit.link.kube",
    "tunnelkit.scheduler.first_question",
    "tunnelkit.scheduler.kube",
    "tunnelkit.session.agent.pod_agent",
    "tunnelkit.session.job.pod_templates",
    "tunnelkit.cli",
    "tunnelkit.lab",
    "tunnelkit.demo",
    "tunnelkit.link.paramiko",
    "tunnelkit.session.doctor.checks",
    "tunnelkit.session.doctor.kube_checks",
)

_LOADED = "import sys; print(*sorted(n for n in sys.modules if n.startswith('tunnelkit')))"


def _loaded(code: str) -> set[str]:
    words = [sys.executable, "-c", f"{code}\n{_LOADED}"]
    return set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())


def _late_imports(module: str) -> Iterator[str]:
    """Yield the modules that functions of `module` import."""
    path = _PACKAGE.parent / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom) and node.module:
                    yield node.module
                elif isinstance(node, ast.Import):
                    yield from (one.name for one in node.names)


def test_a_session_has_all_of_its_modules_soon_and_starts_with_few() -> None:
    first = _loaded("import tunnelkit.session.daemon")
    later = _loaded(
        "import asyncio, tunnelkit.session.daemon\n"
        "from tunnelkit.session.runtime.preload import OF_SCHEDULER, preload\n"
        "import tunnelkit.link.openssh.link, tunnelkit.scheduler.slurm.adapter\n"
        "import tunnelkit.scheduler.pbs.torque\n"
        "for name in OF_SCHEDULER: asyncio.run(preload(name, after_s=0))"
    )
    assert not [one for one in first if one.startswith("tunnelkit.diagnosis.")]
    assert set(MODULES) <= later
    lacking = {
        f"{late} (in {module})"
        for module in later
        for late in _late_imports(module)
        if late.startswith("tunnelkit.") and late not in later and not late.startswith(_ELSEWHERE)
    }
    assert lacking == set()


async def test_a_module_that_cannot_be_imported_is_no_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tunnelkit.session.runtime.preload.MODULES", ("tunnelkit.nowhere", "json"))
    await preload(after_s=0)
    assert "tunnelkit.nowhere" in caplog.text
