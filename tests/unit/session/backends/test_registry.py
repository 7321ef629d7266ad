"""The names in the settings, and the backends that stand behind them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import pytest

from tunnelkit.config.load import load
from tunnelkit.config.schema import LinkName, SchedulerName
from tunnelkit.errors import ConfigError
from tunnelkit.session.backends.registry import BACKENDS, choose


def test_each_name_in_the_settings_has_a_record() -> None:
    links = [kind.name for backend in BACKENDS for kind in backend.links]
    schedulers = [name for backend in BACKENDS for name in backend.schedulers]
    assert sorted([*links, "auto"]) == sorted(get_args(LinkName))
    assert sorted([*schedulers, "auto", "none"]) == sorted(get_args(SchedulerName))


@pytest.mark.parametrize(("key", "known"), [("link", "openssh"), ("scheduler", "slurm")])
def test_an_unknown_name_is_a_config_error(tmp_path: Path, key: str, known: str) -> None:
    (tmp_path / "tunnelkit.toml").write_text(f'[cluster]\n{key} = "carrier-pigeon"\n')
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, environ={})
    assert "carrier-pigeon" in str(caught.value) + str(caught.value.cause)
    assert known in (caught.value.hint or "") + str(caught.value.cause)


def test_ssh_is_the_default(tmp_path: Path) -> None:
    settings = load(tmp_path, environ={})
    assert choose(settings).name == "ssh"
    other = replace(settings.cluster, link=cast(LinkName, "carrier-pigeon"))
    with pytest.raises(ConfigError, match="a cluster that ssh reaches has no link"):
        choose(replace(settings, cluster=other))


def test_a_context_chooses_kubernetes(tmp_path: Path) -> None:
    where = 'context = "me"\nnamespace = "mine"\n'
    (tmp_path / "tunnelkit.toml").write_text(f"[cluster]\n{where}")
    settings = load(tmp_path, environ={})
    assert choose(settings).name == "kubernetes"
    assert settings.require_cluster() == "me/mine"
    by_ssh = replace(settings.cluster, link="openssh")
    with pytest.raises(ConfigError, match="Kubernetes has no link 'openssh'"):
        choose(replace(settings, cluster=by_ssh))
    nowhere = replace(settings, cluster=replace(settings.cluster, namespace=None))
    with pytest.raises(ConfigError, match="no namespace"):
        nowhere.require_cluster()
