"""[[mirror.also]]: how it is read, written back, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tunnelkit.config.load import load
from tunnelkit.config.mirror_roots import AlsoRoot, nested
from tunnelkit.config.schema import Settings
from tunnelkit.config.toml_source import dump
from tunnelkit.errors import ConfigError
from tunnelkit.model import MirrorSpec

TWO = """\
[mirror]
remote = "~/tk/proj"
delete_limit = 5
symlinks = "ignore"

[[mirror.also]]
local = "../lib"
remote = "~/tk/lib"

[[mirror.also]]
local = "~/shared/data sets"
remote = "/scratch/me/data"
exclude = ["*.ckpt"]
symlinks = "keep"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = tmp_path / "proj"
    made.mkdir()
    return made


def read(project: Path, text: str, **environ: str) -> Settings:
    (project / "tunnelkit.toml").write_text(text)
    return load(project, environ={"TK_CONFIG_DIR": str(project.parent / "conf")} | environ)


def also(project: Path, local: str, remote: str) -> Settings:
    return read(project, f'[[mirror.also]]\nlocal = "{local}"\nremote = "{remote}"\n')


def test_each_root_is_a_spec_with_its_own_rules(project: Path) -> None:
    settings = read(project, TWO)
    assert settings.mirror_specs() == (
        MirrorSpec(str(project), "~/tk/proj", (), 5, "ignore", name="", guarded=True),
        MirrorSpec(
            str(project.parent / "lib"), "~/tk/lib", (), 5, "ignore", name="../lib", guarded=True
        ),
        MirrorSpec(
            str(project.parent / "home" / "shared" / "data sets"),
            "/scratch/me/data",
            ("*.ckpt",),
            5,
            "keep",
            name="~/shared/data sets",
            guarded=True,
        ),
    )
    assert str(settings.origins["mirror.also"]).endswith("tunnelkit.toml:6")


def test_they_travel_to_the_daemon_and_into_text(project: Path) -> None:
    settings = read(project, TWO)
    assert Settings.from_json(settings.to_json()).mirror == settings.mirror
    text = dump(settings.written("mirror.also"))
    again = read(project, '[mirror]\nremote = "~/tk/proj"\n', TK_MIRROR_ALSO=text)
    assert again.mirror.also == settings.mirror.also
    assert again.mirror.also[0] == AlsoRoot("../lib", "~/tk/lib")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('local = "../lib"', "remote is missing"),
        ('remote = "~/tk/lib"', "local is missing"),
        ('local = "../lib"\nremote = "~"', "remote: it is your whole home directory"),
        ('local = ""\nremote = "~/x"', "local: it is empty"),
        ('local = "../lib"\nremote = "~/x"\nsymlinks = "chase"', "symlinks: 'chase' is not known"),
        ('local = "../lib"\nremote = "~/x"\nexcludes = []', "unknown key 'excludes'"),
    ],
)
def test_a_table_that_is_wrong_is_named(project: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"mirror\.also") as caught:
        read(project, f"[[mirror.also]]\n{text}\n")
    assert "tunnelkit.toml:1" in caught.value.message
    assert says in caught.value.one_line()


def test_no_table_at_all(project: Path) -> None:
    with pytest.raises(ConfigError, match="also"):
        read(project, '[mirror]\nalso = ["../lib"]\n')


@pytest.mark.parametrize(
    ("local", "remote", "says"),
    [
        ("src", "~/elsewhere", "lies in"),
        (".", "~/elsewhere", "is"),
        ("..", "~/elsewhere", "holds"),
        ("../lib", "~/tk/proj", "is ~/tk/proj"),
        ("../lib", "~/tk/proj/lib", "lies in ~/tk/proj"),
        ("../lib", "~/tk", "holds ~/tk/proj"),
        ("../link", "~/elsewhere", "lies in"),
    ],
)
def test_roots_that_meet_are_refused(project: Path, local: str, remote: str, says: str) -> None:
    (project.parent / "link").symlink_to(project / "src")
    with pytest.raises(ConfigError) as caught:
        also(project, local, remote)
    assert says in caught.value.message and "tunnelkit.toml:1" in caught.value.message


def test_names_that_only_begin_alike_are_apart(project: Path) -> None:
    assert len(also(project, "../proj2", "~/tk/proj2").mirror_specs()) == 2


def test_nested() -> None:
    assert nested("/a", "/a/") == "is"
    assert nested("/a/b", "/a") == "lies in"
    assert nested("/a", "/a/b") == "holds"
    assert nested("/", "/a") == "holds"
    assert nested("/a", "/ab") is None
    assert nested("~/a", "/a") is None
