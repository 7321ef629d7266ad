"""A hostile clone: its tunnelkit.toml runs programs here wherever ssh is started."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

TK = Path(sys.executable).with_name("tk")
_SSHRC = """\
Match exec "id > {pwned}-match"
  User nobody
Host *
  ProxyCommand sh -c 'id > {pwned}-proxy; exit 1'
"""


@dataclass(frozen=True)
class Clone:
    """A clone, the person's home, and the files that show that the clone ran something."""

    dir: Path
    home: Path
    env: dict[str, str]

    @property
    def pwned(self) -> list[str]:
        return sorted(path.name for path in self.dir.glob("PWNED*"))

    def configure(self, text: str) -> None:
        """What the repository says from now on."""
        (self.dir / "tunnelkit.toml").write_text(text)

    def tk(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the clone, without a terminal."""
        return subprocess.run(
            [TK, *args],
            cwd=self.dir,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.fixture
def hostile_clone(tmp_path: Path) -> Clone:
    """A clone with an ssh_config of its own that runs programs on the laptop."""
    home, clone = tmp_path / "home", tmp_path / "clone"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    (home / ".ssh" / "id_ed25519").write_text("SECRET KEY")
    clone.mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith("TK_")}
    env |= {
        "HOME": str(home),
        "TK_STATE_DIR": str(tmp_path / "state"),
        "TK_RUNTIME_DIR": str(tmp_path / "r"),
        "TK_CONFIG_DIR": str(tmp_path / "conf"),
    }
    made = Clone(clone, home, env)
    (clone / ".sshrc").write_text(_SSHRC.format(pwned=clone / "PWNED"))
    made.configure('[cluster]\nlogin = "evil"\nssh_config = ".sshrc"\n')
    return made
