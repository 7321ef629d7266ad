"""The lab's Slurm with accounting: MariaDB and slurmdbd beside it, limits enforced.

The daemons belong to the lab's supervisor, and their files lie in the lab's directory: `tk lab
down` ends and removes all of it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab_fixtures import running_lab, ssh, why_no_lab
from tests.support.ports import free_port
from tunnelkit.lab import LabInfo
from tunnelkit.lab.environment import user
from tunnelkit.lab.layout import LOGIN, Layout, write_private
from tunnelkit.lab.processes import end_all
from tunnelkit.lab.state import LabDaemon, State, require

_READY_S = 90.0
_PROGRAMS = ("mariadbd", "slurmdbd", "slurmctld", "sacctmgr")
_SQL = Path("/usr/share/mysql")
_TABLES = ("system_tables", "performance_tables", "system_tables_data")


def why_no_accounting() -> str | None:
    """The reason that keeps this machine from running the rig, or None if it can."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    lacking = [name for name in _PROGRAMS if shutil.which(name, path=path) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)} (slurmdbd, mariadb-server-core)"
    if not list(Path("/usr/lib").glob("*/slurm*/accounting_storage_mysql.so")):
        return "not installed: slurm-wlm-mysql-plugin"
    return why_no_lab()


@contextmanager
def accounting_lab() -> Iterator[LabInfo]:
    """A lab of one's own whose Slurm has accounts, see `keep_accounts`."""
    with running_lab() as info:
        keep_accounts(info)
        yield info


def keep_accounts(info: LabInfo) -> None:
    """Give a lab's Slurm accounts: `lab` of this user, enforced with limits."""
    state = require(Layout(info.dir))
    database, dbd = free_port(), free_port()
    state = _start_mariadb(state, database)
    state = _start_slurmdbd(state, database, dbd)
    _restart_slurmctld(state, dbd)
    _make_accounts(info)


def _start_mariadb(state: State, port: int) -> State:
    directory = state.layout.dir / "db"
    directory.mkdir(mode=0o700)
    data, password = directory / "data", secrets.token_hex(16)
    (data / "mysql").mkdir(parents=True)
    write_private(directory / "password", password)
    common = ["--no-defaults", f"--datadir={data}", f"--user={user().pw_name}"]
    # What mariadb-install-db does, which needs the client's package as well.
    tables = "".join((_SQL / f"mysql_{name}.sql").read_text() for name in _TABLES)
    subprocess.run(
        [_which("mariadbd"), *common, "--bootstrap", "--innodb-flush-log-at-trx-commit=0"],
        input=f"CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\n{tables}",
        text=True, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    write_private(
        directory / "init.sql",
        "DELETE FROM mysql.global_priv WHERE User='' OR User='root';\n"
        "FLUSH PRIVILEGES;\n"
        "CREATE DATABASE slurm_acct_db;\n"
        f"CREATE USER slurm@'127.0.0.1' IDENTIFIED BY '{password}';\n"
        "GRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1';\n",
    )
    argv = [_which("mariadbd"), *common, "--bind-address=127.0.0.1", f"--port={port}"]
    argv += [f"--socket={directory}/sock", f"--pid-file={directory}/pid", "--skip-name-resolve"]
    argv += [f"--init-file={directory}/init.sql", "--innodb-flush-log-at-trx-commit=0"]
    state = state.start(LabDaemon("mariadbd", LOGIN, tuple(argv)))
    _until(lambda: _listens(port), state, "mariadbd")
    return state


def _start_slurmdbd(state: State, database: int, port: int) -> State:
    layout, me = state.layout, user().pw_name
    password = (layout.dir / "db" / "password").read_text()
    write_private(
        layout.slurm / "slurmdbd.conf",
        f"""AuthType=auth/munge
AuthInfo=socket={layout.munge_socket}
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={me}
PidFile={layout.spool}/dbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct_db
""",
    )
    state = state.start(LabDaemon("slurmdbd", LOGIN, (_which("slurmdbd"), "-D")))
    _until(lambda: _listens(port), state, "slurmdbd")
    return state


def _restart_slurmctld(state: State, port: int) -> None:
    """Have the controller keep accounts; what is a budget's use is counted once a minute."""
    layout = state.layout
    conf = layout.slurm_conf.read_text()
    none = "AccountingStorageType=accounting_storage/none\n"
    assert none in conf
    accounts = f"""AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={layout.munge_socket}
AccountingStorageEnforce=associations,limits,qos,safe
AccountingStorageTRES=gres/gpu
PriorityType=priority/multifactor
PriorityDecayHalfLife=0
PriorityUsageResetPeriod=NONE
PriorityCalcPeriod=1
Licenses=matlab:1
"""
    write_private(layout.slurm_conf, conf.replace(none, accounts))
    controller = state.daemons["slurmctld"]
    assert controller.process is not None
    process = controller.process
    end_all(lambda: {process} if controller.alive else set(), grace_s=5.0)
    state.start(LabDaemon("slurmctld", controller.host, controller.argv))


def _make_accounts(info: LabInfo) -> None:
    """Wait until the controller and the database know one another, then make the account."""
    state = require(Layout(info.dir))

    def known() -> bool:
        done = _on(state, "sacctmgr -n -P show cluster format=cluster,controlport")
        # The database knows the controller's port.
        return any(line.startswith("tklab|") and line[6:] not in ("", "0")
                   for line in done.stdout.splitlines())  # fmt: skip

    _until(known, state, "slurmctld")
    me = user().pw_name
    account(info, f"add account lab Description=lab Organization=lab; "
                  f"sacctmgr -iQ add user {me} Account=lab DefaultAccount=lab")  # fmt: skip

    def starts() -> bool:
        done = _on(state, "sbatch --test-only -A lab --wrap true")
        return "to start at" in done.stderr

    _until(starts, state, "slurmctld")


def account(info: LabInfo, change: str) -> str:
    """Run `sacctmgr` with this change on the lab's login host."""
    return ssh(info, "login", f"sacctmgr -iQ {change}")


def _on(state: State, command: str) -> subprocess.CompletedProcess[str]:
    argv = [*state.on(LOGIN), "sh", "-c", command]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def _until(condition: Callable[[], bool], state: State, name: str) -> None:
    ends = time.monotonic() + _READY_S
    while not condition():
        log = state.layout.log(name)
        words = log.read_text(errors="replace")[-2000:] if log.exists() else ""
        assert time.monotonic() < ends, f"{name} did not become ready: {words}"
        time.sleep(0.1)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _env() -> dict[str, str]:
    return {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}


def _which(name: str) -> str:
    found = shutil.which(name, path=_env()["PATH"])
    assert found is not None, name
    return found
