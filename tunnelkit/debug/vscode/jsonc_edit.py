"""Edits to JSONC text that leave every other character as it was.

Each function takes the whole text and returns the whole new text, written in the
document's own style: its indentation, its line ends, its trailing commas.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tunnelkit.debug.vscode.jsonc import Array, Node, Object, after_trivia

_BLANKS = " \t"


@dataclass(frozen=True, slots=True)
class Style:
    """The layout of a document. `compact`: all on one line."""

    unit: str
    eol: str
    compact: bool


def style_of(text: str, root: Node | None) -> Style:
    r"""Return the style of a document; without any, four blanks and `\n`, as VS Code writes."""
    eol = re.search(r"\r\n|\r|\n", text)
    unit = "    "
    if root is not None:
        base = _indent_of_line(text, root.start)
        for element in _elements(root):
            own = _line_indent(text, element)
            if own is not None and own.startswith(base) and own != base:
                unit = own[len(base) :]
                break
    compact = root is not None and not re.search(r"[\r\n]", text[root.start : root.end])
    return Style(unit, eol.group() if eol else "\n", compact and bool(_elements(root)))


def render(value: object, style: Style, indent: str = "") -> str:
    """`value` as JSON whose first line is already indented by `indent`."""
    if style.compact:
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, ensure_ascii=False, indent=style.unit).split("\n")
    return (style.eol + indent).join(lines)


def replace(text: str, node: Node, value: object, style: Style) -> str:
    """Put `value` where `node` stands."""
    one_line = not re.search(r"[\r\n]", text[node.start : node.end])
    if one_line:
        new = json.dumps(value, ensure_ascii=False)
    else:
        new = render(value, style, _indent_of_line(text, node.start))
    return text[: node.start] + new + text[node.end :]


def append_item(text: str, array: Array, value: object, style: Style) -> str:
    """Add an item at the end of an array."""
    return _append(text, array, "", value, style)


def append_member(text: str, obj: Object, key: str, value: object, style: Style) -> str:
    """Add a member at the end of an object."""
    return _append(text, obj, json.dumps(key, ensure_ascii=False) + ": ", value, style)


def remove_item(text: str, array: Array, index: int) -> str:
    """Take an item out of an array, with its comma and the lines that were its alone.

    Comments beside it stay.
    """
    item, last = array.items[index], index == len(array.items) - 1
    follower = after_trivia(text, item.end)
    if text[follower] == ",":
        text = _cut(text, item.start, item.end, follower)
    else:
        text = _cut(text, item.start, item.end)
        if index:
            # The one before it is the last now.
            comma = after_trivia(text, array.items[index - 1].end)
            text = text[:comma] + text[comma + 1 :]
    if last and not index:
        return _closed(text, array.start)
    return text


def _cut(text: str, start: int, end: int, comma: int | None = None) -> str:
    """Without text[start:end], the comma (which may stand further on) and lines left blank."""
    if comma is not None:
        between = text[end:comma]
        if between.strip(_BLANKS):
            text, end = text[:end] + between + text[comma + 1 :], end
        else:
            end = comma + 1
    line_end = re.compile(r"[ \t]*(\r\n|\r|\n|$)").match(text, end)
    if _line_indent(text, start) is not None and line_end is not None:
        return text[: _line_start(text, start)] + text[line_end.end() :]
    if line_end is not None:
        # The last on a line that others stand on.
        return text[:start].rstrip(_BLANKS) + text[end:]
    after = re.compile(r"[ \t]*").match(text, end)
    assert after is not None
    closing = text[after.end()] in "]}"
    lead = text[:start].rstrip(_BLANKS) if closing else text[:start]
    return lead + text[end if closing else after.end() :]


def _closed(text: str, start: int) -> str:
    """An array at `start` that holds nothing is written `[]`."""
    inside = re.compile(r"\[\s*\]").match(text, start)
    return text if inside is None else text[:start] + "[]" + text[inside.end() :]


def _append(text: str, container: Object | Array, label: str, value: object, style: Style) -> str:
    elements = _elements(container)
    inline = not re.search(r"[\r\n]", text[container.start : container.end])
    if inline and (elements or style.compact):
        return _append_inline(text, container, label + json.dumps(value, ensure_ascii=False))
    close = container.end - 1
    close_indent = _line_indent(text, close)
    outer = _indent_of_line(text, container.start) if close_indent is None else close_indent
    indent = outer + style.unit
    for element in reversed(elements):
        own = _line_indent(text, element)
        if own is not None:
            indent = own
            break
    element_text = indent + label + render(value, style, indent)
    if container.trailing_comma is not None:
        element_text += ","
    # Comments between the last element and the closing bracket stay where they are:
    # the new element goes on lines of its own just before the bracket's.
    at = _content_end(text, close)
    closing = "" if close_indent is not None else style.eol + outer
    text = text[:at] + style.eol + element_text + closing + text[_resume(text, at, close) :]
    return _with_comma(text, container)


def _append_inline(text: str, container: Object | Array, element: str) -> str:
    elements = _elements(container)
    if container.trailing_comma is not None:
        at = container.trailing_comma
        return f"{text[:at]} {element},{text[at:]}"
    at = _last_end(container)
    lead = ", " if elements else ""
    return f"{text[:at]}{lead}{element}{text[at:]}"


def _with_comma(text: str, container: Object | Array) -> str:
    """Put the comma that now must follow what was the last element."""
    if not _elements(container) or container.trailing_comma is not None:
        return text
    at = _last_end(container)
    return text[:at] + "," + text[at:]


def _content_end(text: str, close: int) -> int:
    """The place of new lines: before the line end and blanks in front of the bracket at `close`."""
    at = close
    while at and text[at - 1] in _BLANKS:
        at -= 1
    if at and text[at - 1] == "\n":
        at -= 1
    if at and text[at - 1] == "\r":
        at -= 1
    return at


def _resume(text: str, at: int, close: int) -> int:
    """Keep the bracket's own line; drop the blanks before a bracket that gets a new one."""
    return at if _line_indent(text, close) is not None else close


def _elements(container: Node | None) -> list[int]:
    """The start offsets of an object's members or an array's items."""
    if isinstance(container, Object):
        return [member.start for member in container.members]
    if isinstance(container, Array):
        return [item.start for item in container.items]
    return []


def _last_end(container: Object | Array) -> int:
    """The end of the last element, or the place after the opening bracket."""
    if isinstance(container, Object):
        return container.members[-1].value.end if container.members else container.start + 1
    return container.items[-1].end if container.items else container.start + 1


def _line_start(text: str, offset: int) -> int:
    return max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1


def _line_indent(text: str, offset: int) -> str | None:
    """The blanks before `offset` if nothing else stands before it on its line, else None."""
    lead = text[_line_start(text, offset) : offset].removeprefix("\ufeff")
    return lead if not lead.strip(_BLANKS) else None


def _indent_of_line(text: str, offset: int) -> str:
    """The blanks that the line of `offset` starts with."""
    line = text[_line_start(text, offset) : offset].removeprefix("\ufeff")
    return line[: len(line) - len(line.lstrip(_BLANKS))]
