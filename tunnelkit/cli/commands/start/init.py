"""`tk init`: a first tunnelkit.toml, and the VS Code files."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tunnelkit.cli.completion import options
from tunnelkit.cli.lazy_typer import typer
from tunnelkit.cli.terminal.output import note, say
from tunnelkit.errors import ConfigError, ConnectionFailed, TimeoutExpired, UsageError

if TYPE_CHECKING:
    from tunnelkit.config.schema import Settings
    from tunnelkit.file_changes import FileChange
    from tunnelkit.session.connection.kubeconfig import KubeContext


_SHOWN_ALIASES = 12


@dataclass(frozen=True, slots=True)
class _Answers:
    """Values for the file; None leaves the line commented out."""

    login: str | None
    remote: str | None
    scheduler: str | None
    profile: str | None
    kube: KubeContext | None = None


def init(
    login: Annotated[str | None, options.login_option()] = None,
    remote: Annotated[
        str | None, options.text_option("DIR", "The project's directory on the cluster.")
    ] = None,
    scheduler: Annotated[
        str | None, options.scheduler_option("; default: asked of the login host.")
    ] = None,
    profile: Annotated[str | None, options.base_profile_option()] = None,
    kube: Annotated[bool, typer.Option("--kube", help="Kubernetes or OpenShift.")] = False,
    context: Annotated[
        str | None, options.text_option("NAME", "With --kube: not the current context.")
    ] = None,
    namespace: Annotated[
        str | None, options.text_option("NAME", "With --kube: not the context's own.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite a tunnelkit.toml that is here.")
    ] = False,
    no_vscode: Annotated[bool, typer.Option("--no-vscode", help="Leave .vscode/ alone.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, take defaults.")] = False,
) -> None:
    """Set up this directory: tunnelkit.toml and VS Code's files.

    Asks for what the flags don't give.

    tk init
    tk init --login me@login.example.org --remote ~/code
    tk init --kube --remote /workspace
    """
    from tunnelkit import file_changes
    from tunnelkit.cli.commands.debug.vscode import report
    from tunnelkit.cli.terminal.context import as_typed
    from tunnelkit.config.load import FILE_NAME, find_project, load
    from tunnelkit.config.trust import check_places
    from tunnelkit.session.runtime.trust_store import examine

    target = Path.cwd() / FILE_NAME
    _check_absent(target, force=force)
    if (above := find_project(target.parent.parent)) is not None:
        typer.echo(f"note: from here on this directory is a project apart from {above}")
    pods = _from_kubeconfig(context, namespace) if kube or context or namespace else None
    directory = as_typed(remote) if remote is not None else None
    given = _Answers(login, directory, scheduler, profile, pods)
    answers, silent = _completed(target, given, may_ask=not yes and is_interactive())
    settings = _settings(target, answers)
    check_places(settings, all_of_it=True)
    # Planned before anything is written: a launch.json that can't be read stops it all.
    editor_changes = [] if no_vscode else _editor_changes(settings, silent=silent)
    file_changes.check(editor_changes, within=target.parent)
    _write(target, answers, force=force)
    examine(load(target.parent)).agree()  # the user has just said it
    file_changes.apply(editor_changes, within=target.parent)
    report(editor_changes)
    _say_next(settings, silent=silent)


def _from_kubeconfig(context: str | None, namespace: str | None) -> KubeContext:
    """Return the context and namespace to pin: as given, else those of this moment."""
    from tunnelkit.session.connection.kubeconfig import read_context

    found = read_context(context, namespace)
    say(f"Kubernetes: context {found.context}, namespace {found.namespace}")
    return found


def _say_next(settings: Settings, *, silent: bool) -> None:
    if silent:
        login = settings.require_login()
        typer.echo(f"next: {login} does not answer: correct tunnelkit.toml, or see tk doctor")
    else:
        typer.echo("next: tk up POD" if settings.cluster.is_kubernetes else "next: tk up")


def is_interactive() -> bool:
    """Return True if a user is there to answer."""
    return sys.stdin.isatty()


def _check_absent(target: Path, *, force: bool) -> None:
    if os.path.lexists(target) and not force:
        raise UsageError(
            f"{target} is already here", hint="edit it, or give --force to overwrite it"
        )


def _settings(target: Path, answers: _Answers) -> Settings:
    """Return the settings of these answers, checked. An existing file is not read."""
    from tunnelkit.config.load import assemble

    overrides: Mapping[str, object] = {
        "cluster.login": answers.login,
        "mirror.remote": answers.remote,
        "cluster.scheduler": answers.scheduler,
        "profile": answers.profile,
        "cluster.context": answers.kube.context if answers.kube else None,
        "cluster.namespace": answers.kube.namespace if answers.kube else None,
    }
    return assemble(target.parent, None, cwd=target.parent, overrides=overrides)


def _completed(target: Path, given: _Answers, *, may_ask: bool) -> tuple[_Answers, bool]:
    """Return all answers, and True if the cluster did not answer."""
    _settings(target, given)  # so that a wrong flag fails before any question
    if given.kube is not None:
        return given, False
    answers = _ask(target, given, may_ask=may_ask)
    settings = _settings(target, answers)
    if settings.cluster.scheduler != "auto" or answers.scheduler is not None:
        return answers, False
    found = _detect(settings)
    # One that is not there now may only not be loaded: it is looked for again at each `tk up`.
    written = None if found == "none" else found
    return _Answers(answers.login, answers.remote, written, answers.profile), found is None


def _ask(target: Path, given: _Answers, *, may_ask: bool) -> _Answers:
    settings = _settings(target, given)
    login, profile = given.login, given.profile
    if settings.cluster.login is not None:
        # The environment won't always be this one: what it names goes into the file.
        if settings.origins["cluster.login"].kind == "environment":
            login = str(settings.cluster.login)
        profile = settings.profile if given.login is None else given.profile
    else:
        if not may_ask:
            named = settings.profile
            raise UsageError(
                f"the profile {named!r} names no login host"
                if named
                else "which cluster? none is named, and nothing may be asked",
                hint="give --login HOST" if named else "give --login HOST or --profile NAME",
            )
        _offer_profiles()
        _offer_aliases()
        login = _prompt(target, "Login host (host, user@host or ssh_config alias)", "login")
    remote = given.remote
    if remote is None and may_ask:
        default = settings.mirror.remote
        remote = _prompt(target, "Directory on the cluster", "remote", default=default)
    return _Answers(login, remote, given.scheduler, profile)


def _offer_profiles() -> None:
    """Name the profiles that are there: each makes the question below needless."""
    from tunnelkit.config.profiles import names

    if found := names():
        note(f"there are profiles to build on with `tk init --profile NAME`: {', '.join(found)}")


def _offer_aliases() -> None:
    """Name the hosts of ~/.ssh/config, as many as fit."""
    from tunnelkit.config.ssh_aliases import ssh_aliases

    if found := ssh_aliases():
        more = f" and {len(found) - _SHOWN_ALIASES} more" if len(found) > _SHOWN_ALIASES else ""
        note(f"your ssh_config has {', '.join(found[:_SHOWN_ALIASES])}{more}")


def _prompt(target: Path, question: str, field: str, *, default: str | None = None) -> str:
    """Ask until the answer is one that the configuration takes."""
    while True:
        answer: str = typer.prompt(question, default=default).strip()
        tried = _Answers(
            login=answer if field == "login" else None,
            remote=answer if field == "remote" else None,
            scheduler=None,
            profile=None,
        )
        try:
            _settings(target, tried)
        except ConfigError as error:
            note(error.cause or error.one_line())
        else:
            return answer


def _detect(settings: Settings) -> str | None:
    """Return the login host's scheduler, and print it; None to leave it at auto."""
    from tunnelkit.cli.terminal.tty import answer_prompt
    from tunnelkit.session.connection.probe import detect_scheduler

    login = settings.require_login()
    try:
        found = detect_scheduler(settings, answer_prompt)
    except (ConnectionFailed, TimeoutExpired) as error:
        say(f"{login} can't be asked for its scheduler, left at auto: {error.one_line()}")
        return None
    say(f"{login}: no scheduler found" if found == "none" else f"{login}: scheduler {found}")
    return found


def _write(target: Path, answers: _Answers, *, force: bool) -> None:
    from tunnelkit import file_changes
    from tunnelkit.cli.commands.debug.vscode import report
    from tunnelkit.config import toml_source

    before = file_changes.read_bytes(target, error=ConfigError) if force else None
    change = file_changes.FileChange(target, before, _template(target.parent, answers).encode())
    toml_source.parse(target, change.after)
    file_changes.apply([change], within=target.parent, error=ConfigError)
    if change.status == "updated":
        say(f"{target.name}: replaced")
    else:
        report([change])


def _editor_changes(settings: Settings, *, silent: bool) -> list[FileChange]:
    """Plan VS Code's files; leave them for later if the cluster can't be reached now.

    silent: the reason was printed already.
    """
    from tunnelkit.cli.commands.debug.vscode import plan_editor_files

    if silent and settings.mirror.remote.startswith("~/"):
        # To know that home takes another login, and another push or code.
        note(".vscode not written, run `tk vscode` later")
        return []
    try:
        return plan_editor_files(settings, settings.project_dir)
    except (ConnectionFailed, TimeoutExpired) as error:
        why = "" if silent else f": {error.one_line()}"
        note(f".vscode not written, run `tk vscode` later{why}")
        return []


def _template(project_dir: Path, answers: _Answers) -> str:
    from tunnelkit.config.toml_source import quote

    def line(key: str, value: str | None, example: str) -> str:
        return f"# {key} = {quote(example)}" if value is None else f"{key} = {quote(value)}"

    cluster = f"""\
# Where you ssh to: host, user@host or an alias from your ssh_config.
{line("login", answers.login, "me@login.example.org")}
# auto | slurm | pbs | torque | none (none: the login host is the compute node's way in)
{line("scheduler", answers.scheduler, "auto")}"""
    if answers.kube is not None:
        cluster = f"""\
# Kubernetes: a context of your kubeconfig, and a namespace; whatever is current elsewhere.
{line("context", answers.kube.context, "")}
{line("namespace", answers.kube.namespace, "")}
{line("kubectl", answers.kube.kubectl, "")}
# container = "train"  # default: the pod's default one"""
    remote_example = "~/tk/" + (project_dir.name if project_dir.name.isprintable() else "project")
    return f"""\
# tunnelkit: see every value and where it comes from with `tk config show`.

# A cluster profile to build on: clusters/NAME.toml in your config directory (`tk config path`).
{line("profile", answers.profile, "lab")}

# Ports of the compute node that you want on 127.0.0.1 here: "PORT", "L:R" or "L:host:R".
# forwards = ["8888", "6006:127.0.0.1:6006"]

[cluster]
{cluster}
# Shell lines to run on the node before your program.
# prologue = "module load cuda\\nsource ~/venv/bin/activate"

[allocation]
# What `tk up` asks for; its flags win over these.
# gpus = 1
# cpus = 4
# mem = "16G"
# time = "2:00:00"
# partition = "gpu"
# On Kubernetes: pod = "my-pod", image = "ghcr.io/me/train:12" or manifest = "job.yaml"

[mirror]
# Where this directory is copied to on the cluster.
{line("remote", answers.remote, remote_example)}
# Not copied, besides what .gitignore names.
# exclude = ["data/", "*.ckpt"]
# Symlinks are sent as they are ("keep"), or left out ("ignore").
# symlinks = "keep"
# More directories, each with its place there; `local` counts from this one:
# [[mirror.also]]
# local = "../lib"
# remote = "~/tk/lib"

[debug]
# The port that your editor attaches to, on 127.0.0.1 here.
# port = 40056
"""
