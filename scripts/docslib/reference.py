"""The reference pages, made of the code's own declarations."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import tunnelkit
from scripts.docslib.settings import MEANING
from tunnelkit import errors
from tunnelkit.cli.app import build
from tunnelkit.cli.registry import COMMANDS
from tunnelkit.config.schema import KEYS
from tunnelkit.errors import MEANINGS, TunnelkitError

_PACKAGE = Path(tunnelkit.__file__).parent


def pages() -> dict[str, str]:
    """Return the pages: address in the site -> Markdown."""
    return {
        "reference/commands.md": commands(),
        "reference/settings.md": settings(),
        "reference/exit-codes.md": exit_codes(),
        "reference/errors.md": error_list(),
    }


def _cell(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


# -- commands --------------------------------------------------------------------------------


def commands() -> str:
    """Return the page of every command with its arguments and options."""
    group: Any = typer.main.get_command(build(set(COMMANDS)))
    parts = ["# Commands\n\nEach has `--help`, too. Generated from tk's own declarations.\n"]
    for name in COMMANDS:
        parts += _command(name, group.commands[name], level=2)
    return "\n".join(parts)


def _command(name: str, command: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} tk {name}\n"
    yield _help(command.help or "") + "\n"
    shown = [one for one in command.params if not one.hidden and "--help" not in one.opts]
    if shown:
        yield "| argument or option | meaning | default |\n|---|---|---|"
        yield from (_parameter(one) for one in shown)
        yield ""
    for under in getattr(command, "commands", {}):
        yield from _command(f"{name} {under}", command.commands[under], level + 1)


def _help(text: str) -> str:
    """Return a command's help with its examples as code."""
    lines = [line.rstrip() for line in inspect.cleandoc(text.replace("\b", "")).splitlines()]
    blocks = re.split(r"\n{2,}", "\n".join(lines).strip())
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: str) -> str:
    flat = textwrap.dedent(block)
    return f"```\n{flat}\n```" if re.match(r"\s*tk ", block) else flat


def _parameter(one: Any) -> str:
    if one.param_type_name == "argument":
        name = f"`{one.metavar or one.name.upper()}`"
    else:
        name = ", ".join(f"`{word}`" for word in (*one.opts, *one.secondary_opts))
        name += f" `{one.metavar}`" if one.metavar and not one.is_flag else ""
    default = one.default
    shown = "" if default in (None, False, True, (), []) or callable(default) else f"`{default}`"
    return f"| {_cell(name)} | {_cell(one.help or '')} | {_cell(shown)} |"


# -- settings --------------------------------------------------------------------------------


def settings() -> str:
    """Return the page of every key of tunnelkit.toml."""
    parts = [
        "# Settings\n\nKeys of `tunnelkit.toml` and of profiles. `tk config show` tells each value "
        "and its origin; [`tk help config`](../help/config.md) which origin wins.\n"
    ]
    section = None
    for key in KEYS.values():
        if key.section != section:
            section = key.section
            title = f"[{section}]" if section else "Top level"
            parts.append(
                f"\n## {title}\n\n| key | default | meaning | variable |\n|---|---|---|---|"
            )
        short = key.name.rpartition(".")[2]
        default = "" if key.default is None else f"`{_toml(key)}`"
        meaning = _cell(MEANING[key.name])
        parts.append(f"| `{short}` | {_cell(default)} | {meaning} | `{key.variable}` |")
    return "\n".join(parts) + "\n"


def _toml(key: Any) -> str:
    written = key.kind.dump(key.default)
    if isinstance(written, bool):
        return str(written).lower()
    return f'"{written}"' if isinstance(written, str) else str(written)


# -- exit codes and errors -------------------------------------------------------------------


def exit_codes() -> str:
    """Return the page of the exit codes."""
    rows = "\n".join(f"| {int(code)} | {code.name} | {what} |" for code, what in MEANINGS.items())
    return (
        f"# Exit codes\n\n| code | name | meaning |\n|---|---|---|\n{rows}\n\n"
        "`tk run` exits with the exit code of the command that it ran "
        "(128 + N after signal N, 127 if there is no such command, 126 if it may not be run).\n"
    )


def error_kinds() -> dict[str, type[TunnelkitError]]:
    """Return the classes of errors by name, base classes first."""
    found = [one for one in vars(errors).values() if isinstance(one, type)]
    return {one.__name__: one for one in found if issubclass(one, TunnelkitError)}


def error_list() -> str:
    """Return the page of every error with its hint, by class."""
    made = list(errors_made())
    parts = [
        "# Errors\n\nAn error is one line: `tk: MESSAGE: CAUSE — HINT`. Parts that differ are "
        "shown as `…`. With `--json` it is an object with `kind`, `message`, `cause`, `hint`, "
        "`transient` and `exit_code`.\n"
    ]
    for name, kind in error_kinds().items():
        code = kind.exit_code
        parts.append(f"\n## {name}\n\nExit code {int(code)} ({code.name}). {_doc(kind)}\n")
        rows = sorted({(message, hint) for one, message, hint in made if one == name and message})
        if rows:
            parts.append("| message | what to do |\n|---|---|")
            parts += [f"| {_text(message)} | {_text(hint)} |" for message, hint in rows]
    return "\n".join(parts) + "\n"


def _doc(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())


def _text(text: str) -> str:
    """Return a message as Markdown of a table's cell, where it has no markup but code."""
    parts = _cell(text).split("`")
    plain = [re.sub(r"([\\<>*_\[\]])", r"\\\1", part) for part in parts]
    return "`".join(part if i % 2 else plain[i] for i, part in enumerate(parts))


def errors_made() -> Iterator[tuple[str, str, str]]:
    """Yield (class, message, hint) of each place in tk's code that makes an error."""
    kinds = set(error_kinds())
    for file in sorted(_PACKAGE.rglob("*.py")):
        if file.relative_to(_PACKAGE).parts[0] in ("demo", "lab"):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id in kinds:
                words = {word.arg: word.value for word in node.keywords}
                first = node.args[0] if node.args else words.get("message")
                yield node.func.id, _literal(first), _literal(words.get("hint"))


def _literal(node: ast.expr | None) -> str:
    """Return the text of a literal, with … for what is put in; "" of anything else."""
    if isinstance(node, ast.Constant):
        return str(node.value or "")
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
        )
    return ""
