"""The imports of a program, found by ast and looked for by the interpreter's own finders.

Run by the interpreter that the script would have, as `python -c`, which may be as old as 3.6.
Nothing of the program is imported or executed. argv: the kind of the target (file, module or
text), the target, and where a text's imports are looked for. Prints JSON.
"""

import ast
import json
import os
import sys
import tokenize
from typing import Dict, Iterator, List, Optional, Set, Tuple

#: At most so many files of the user's own are read, and of each so many bytes.
MOST_FILES, MOST_BYTES, MOST_MISSING = 200, 4 << 20, 50
#: .pth files of setuptools and virtualenv, whose code brings no module.
_HARMLESS = ("distutils-precedence.pth", "_virtualenv.pth")
_OPTIONAL = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


class Missing(Exception):
    """The target is not there, or can't be read."""


def names_of(tree: ast.AST) -> Iterator[Tuple[str, int, bool]]:
    """Yield (module, line, is_needed) for each absolute import that is not an optional one.

    is_needed: False inside a function, which may never be called."""
    stack: List[Tuple[ast.AST, bool]] = [(tree, True)]
    while stack:
        node, needed = stack.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, needed
        elif isinstance(node, ast.ImportFrom):
            if not node.level and node.module:
                yield node.module, node.lineno, needed
        elif isinstance(node, ast.Try) and any(_catches(one) for one in node.handlers):
            stack += [(one, needed) for one in node.orelse + node.finalbody]
        elif isinstance(node, ast.If):
            # What stands under a condition may not be for this machine.
            stack += [(one, False) for one in node.body + node.orelse]
        else:
            inner = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            stack += [(one, needed and not inner) for one in ast.iter_child_nodes(node)]


def _catches(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(one is None or getattr(one, "id", "") in _OPTIONAL for one in kinds)


def relatives_of(tree: ast.AST, path: str) -> Iterator[str]:
    """Yield the files that may be meant by relative imports."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        place = os.path.dirname(path)
        for _ in range(min(node.level - 1, 50)):
            place = os.path.dirname(place)
        place = os.path.join(place, *(node.module or "").split("."))
        for base in [place, *(os.path.join(place, alias.name) for alias in node.names)]:
            yield f"{base}.py"
            yield os.path.join(base, "__init__.py")


class Finder:
    """Looks for modules as `import` does, without importing any."""

    def __init__(self) -> None:
        self._found: Dict[str, Optional[Tuple[str, List[str]]]] = {}

    def find(self, name: str) -> Optional[Tuple[str, List[str]]]:
        """Return (file or "", the directories of its submodules); None if it is not there."""
        if name not in self._found:
            self._found[name] = self._look(name)
        return self._found[name]

    def _look(self, name: str) -> Optional[Tuple[str, List[str]]]:
        parent, _, _ = name.rpartition(".")
        path: Optional[List[str]] = None
        if parent:
            above = self.find(parent)
            if above is None:
                return None
            path = above[1]
            # A module that makes its submodules itself (os.path, six.moves) can't be seen into.
            if not path:
                return above[0], []
        for finder in sys.meta_path:
            try:
                spec = finder.find_spec(name, path)
            except Exception:  # noqa: S112 - one finder's fault is not the program's
                continue
            if spec is not None:
                where = spec.submodule_search_locations
                origin = spec.origin if spec.has_location else None
                return origin or "", list(where or [])
        return None


def read(path: str) -> Tuple[ast.AST, str]:
    """Return a file's syntax tree and what is wrong with it. Raises Missing."""
    try:
        if os.path.getsize(path) > MOST_BYTES:
            return ast.parse(""), ""
        with tokenize.open(path) as file:
            return parse(file.read(), path)
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        raise Missing(getattr(error, "strerror", None) or str(error)) from None


def parse(text: str, name: str) -> Tuple[ast.AST, str]:
    """Return a syntax tree and what is wrong with the text."""
    try:
        return ast.parse(text, name), ""
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", 0) or 0
        return ast.parse(""), f"line {line}: {getattr(error, 'msg', error)}"


def own_place(kind: str, target: str, where: str) -> str:
    """Return the first entry of sys.path, as this interpreter would have it for the target."""
    if kind == "file":
        return os.path.dirname(os.path.realpath(target))
    return where


def of_venv(home: str) -> Tuple[List[str], bool]:
    """Return the places of packages in a virtual environment that is not started, and whether it
    may have others. Its .pth files are read; the lines that are code are not run."""
    with open(os.path.join(home, "pyvenv.cfg"), errors="replace") as file:
        settings = "".join(file.read(MOST_BYTES).lower().split(" "))
    name = "pypy" if sys.implementation.name == "pypy" else "python"
    version = "{}{}.{}".format(name, *sys.version_info)
    bases = [os.path.join(home, lib, version, "site-packages") for lib in ("lib", "lib64")]
    if "include-system-site-packages=true" in settings:
        import site

        bases += site.getsitepackages()
    places: List[str] = []
    # A site's own may have a sitecustomize, which brings others.
    unsure = bool(os.environ.get("PYTHONPATH"))
    for base in bases:
        if not os.path.isdir(base):
            continue
        places.append(base)
        for name in sorted(os.listdir(base)):
            if not name.endswith(".pth"):
                continue
            try:
                with open(os.path.join(base, name), errors="replace") as file:
                    lines = file.read(MOST_BYTES).splitlines()
            except OSError:
                continue
            for line in lines:
                if line.startswith(("import ", "import\t")):
                    unsure = unsure or name not in _HARMLESS
                elif line.strip() and not line.startswith("#"):
                    places.append(os.path.join(base, line.strip()))
    return places, unsure


def report(kind: str, target: str, where: str) -> Dict[str, object]:
    """Return what is not there."""
    given = os.environ.get("TK_PYTHONPATH", "")
    places = [os.path.abspath(one) for one in given.split(os.pathsep)] if given else []
    sys.path[:] = places + [one for one in sys.path if one]
    venv, unsure = os.environ.get("TK_VENV", ""), False
    if venv:
        packages, unsure = of_venv(venv)
        sys.path += packages
    own = own_place(kind, target, where)
    sys.path.insert(0, own)
    finder = Finder()
    missing: List[Dict[str, object]] = []
    errors: List[str] = []
    if kind == "module":
        spec = finder.find(target)
        if spec is None:
            missing.append({"name": target, "file": "", "line": 0, "needed": True})
        elif spec[1]:
            spec = finder.find(target + ".__main__")
        queue = [spec[0]] if spec and spec[0].startswith(own + os.sep) else []
    else:
        queue = [target]
    seen: Set[str] = set()
    while queue and len(seen) < MOST_FILES:
        path = queue.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            tree, error = parse(sys.stdin.read(), path) if kind == "text" else read(path)
        except Missing as why:
            return {"problem": str(why)} if path == target else {}
        if error:
            errors.append(f"{path}: {error}")
        for name, line, needed in sorted(set(names_of(tree)), key=lambda one: one[1]):
            found = finder.find(name)
            if found is None:
                # A parent that is there may make the rest at its import.
                sure = needed and not unsure and finder.find(name.partition(".")[0]) is None
                missing.append({"name": name, "file": path, "line": line, "needed": sure})
                continue
            parts = name.split(".")
            for size in range(1, len(parts) + 1):
                above = finder.find(".".join(parts[:size]))
                if above is not None and above[0].endswith(".py") and _is_own(above[0], own):
                    queue.append(above[0])
        relative = () if kind == "text" else relatives_of(tree, path)
        queue += [one for one in relative if os.path.isfile(one) and _is_own(one, own)]
    return {"missing": missing[:MOST_MISSING], "errors": errors[:5], "files": len(seen)}


def _is_own(path: str, own: str) -> bool:
    inside = os.path.realpath(path).startswith(own + os.sep)
    return inside and "site-packages" not in path and "dist-packages" not in path


def main(argv: List[str]) -> None:
    """Print what is not there, and which interpreter looked."""
    found = report(argv[0], argv[1], argv[2])
    version = ".".join(str(one) for one in sys.version_info[:3])
    # A venv's interpreter is named as the script has it.
    named = os.environ["TK_PROGRAM"] if os.environ.get("TK_VENV") else sys.executable
    python = os.path.abspath(named)
    found.update({"python": python, "version": version})
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
