"""pdb over one program, whose prompt is this process's stdin and stdout.

The session of `tk pdb --port` sends this text (session/handlers/pdb_port.py); `main` runs
`FILE | -m MODULE ARGUMENTS` again and again, as the program paipdb of OpenPAI does. It uses of pdb
what has not changed from Python 3.8 to 3.14.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import pdb
import sys
import threading
import traceback
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Callable, Dict, List, Optional, TextIO, Tuple, cast

Trace = Callable[[FrameType, str, object], None]
#: Limit of the wait for threads that the program leaves behind.
_LEAVE_S = 5.0


class ProgramPdb(pdb.Pdb):
    """pdb in one thread of the program, on the process's stdin and stdout."""

    def __init__(self, owner: "Debugger") -> None:
        super().__init__(stdin=owner.stdin, stdout=owner.stdout, nosigint=True)
        self._owner = owner
        #: The user has typed `q`.
        self.left = False

    def set_quit(self) -> None:
        """End the program: `q`, or the end of stdin."""
        self.left = True
        super().set_quit()
        if threading.current_thread() is not threading.main_thread():
            # BdbQuit would end this thread only.
            self._owner.stdout.flush()
            os._exit(0)

    def interaction(self, frame: Optional[FrameType], traceback: Optional[TracebackType]) -> None:
        """Show the prompt, one thread at a time."""
        with self._owner.prompt:
            super().interaction(frame, traceback)

    def trace_dispatch(self, frame: FrameType, event: str, arg: object) -> Trace:
        """Let a frame go once nothing is traced: up to 3.9 its line number would stand still."""
        traced = super().trace_dispatch(frame, event, arg)
        return cast(Trace, None if sys.gettrace() is None else traced)

    def stop_here(self, frame: FrameType) -> bool:
        """Never stop in the caller of the program."""
        return frame is not self.botframe and super().stop_here(frame)

    def stop_in(self, frame: Optional[FrameType]) -> None:
        """Stop at the next line of this frame."""
        last, bottom = None, self.botframe
        while frame is not None and frame is not bottom:
            frame.f_trace = None  # up to 3.9 this brings its line number up to date
            frame.f_trace = self.trace_dispatch
            last, frame = frame, frame.f_back
        if frame is None:
            self.botframe = last
        self.set_step()
        sys.settrace(self.trace_dispatch)


class Target:
    """The program: `FILE ARGUMENTS` or `-m MODULE ARGUMENTS`. Raises what importing it raises."""

    def __init__(self, words: List[str]) -> None:
        self.is_module = words[0] == "-m"
        if self.is_module:
            self.name, self.arguments = words[1], words[2:]
            sys.path[0] = os.getcwd()
            self.path = self._spec().origin or self.name
        else:
            self.name, self.arguments = words[0], words[1:]
            self.path = os.path.abspath(self.name)
            sys.path[0] = os.path.dirname(os.path.realpath(self.name))

    def load(self) -> Tuple[CodeType, Dict[str, object]]:
        """The code, and the names of a fresh `__main__`."""
        names: Dict[str, object] = {"__file__": self.path, "__cached__": None}
        if not self.is_module:
            with io.open_code(self.path) as file:
                return compile(file.read(), self.path, "exec", dont_inherit=True), names
        spec = self._spec()
        loader, code = spec.loader, None
        if isinstance(loader, importlib.abc.InspectLoader):
            code = loader.get_code(spec.name)
        if code is None:
            raise ImportError(f"{spec.name} has no code to debug")
        names.update(__spec__=spec, __loader__=loader, __package__=spec.parent)
        return code, names

    def _spec(self) -> importlib.machinery.ModuleSpec:
        spec = importlib.util.find_spec(self.name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(self.name + ".__main__")
        if spec is None:
            raise ImportError(f"No module named {self.name}")
        return spec


class Debugger:
    """The program under pdb, from its first line, until the user leaves."""

    def __init__(self, stdin: TextIO, stdout: TextIO) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.prompt = threading.RLock()
        self._pid = os.getpid()
        self._of_thread = threading.local()
        self._pdb = self._of_thread.pdb = ProgramPdb(self)

    def stop(self, frame: Optional[FrameType]) -> None:
        """Stop in this frame of the running thread: `breakpoint()` and its kind."""
        if os.getpid() != self._pid:
            print("[tk] a breakpoint() in a child process is passed over", file=sys.stderr)
            return
        found = getattr(self._of_thread, "pdb", None)
        if found is None:
            found = self._of_thread.pdb = ProgramPdb(self)
            found.reset()
        found.stop_in(frame)

    def run(self, target: Target) -> None:
        """Run the program again and again. Raises what its code raises as it is read."""
        sys.argv = [target.path if target.is_module else target.name, *target.arguments]
        while not self._pdb.left:
            code, names = target.load()
            module = ModuleType("__main__")
            vars(module).update(names)
            sys.modules["__main__"] = module
            self._once(target, code, module)

    def _once(self, target: Target, code: CodeType, module: ModuleType) -> None:
        try:
            self._pdb.run(code, vars(module))
            if not self._pdb.left:
                self._say("The program finished and will be restarted")
        except pdb.Restart:
            self._say(f"Restarting {target.name} with arguments:")
            self._say("\t" + " ".join(sys.argv[1:]))
        except SystemExit as error:
            self._say(f"The program exited via sys.exit(). Exit status: {error}")
        except BaseException as error:
            self._post_mortem(target, code, error)

    def _post_mortem(self, target: Target, code: CodeType, error: BaseException) -> None:
        trace = _of_program(error.__traceback__, code)
        error.__traceback__ = trace
        traceback.print_exception(type(error), error, trace)
        self._say("Uncaught exception. Entering post mortem debugging")
        self._say("Running 'cont' or 'step' will restart the program")
        self._pdb.reset()
        self._pdb.interaction(None, trace)
        if not self._pdb.left:
            self._say(f"Post mortem debugger finished. The {target.name} will be restarted")

    def _say(self, text: str) -> None:
        print(text, file=self.stdout, flush=True)


def _of_program(trace: Optional[TracebackType], code: CodeType) -> Optional[TracebackType]:
    """The part of a traceback that begins with the program's own code."""
    one = trace
    while one is not None and one.tb_frame.f_code is not code:
        one = one.tb_next
    return one or trace


def _offer(debugger: Debugger) -> None:
    """Let the program stop by `breakpoint()`, `pdb.set_trace()` and `paipdb.settrace(port=...)`."""

    def stop(*args: object, **given: object) -> None:
        debugger.stop(sys._getframe().f_back)

    def hook(*args: object, **given: object) -> None:
        if os.environ.get("PYTHONBREAKPOINT") != "0":
            debugger.stop(sys._getframe().f_back)

    sys.breakpointhook = hook
    paipdb = ModuleType("paipdb", "Stops in tk's debugger; the port is not needed.")
    for module, names in ((paipdb, ("set_trace", "settrace")), (pdb, ("set_trace",))):
        for name in names:
            setattr(module, name, stop)
    sys.modules["paipdb"] = paipdb


def _as_utf8(stream: object, errors: str) -> None:
    """The client's text is UTF-8, whatever the locale of the job."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors=errors, line_buffering=True)


def main() -> None:
    """Run the program of sys.argv; exit with 0 once the user leaves."""
    _as_utf8(sys.stdin, "replace")
    _as_utf8(sys.stdout, "backslashreplace")
    debugger = Debugger(sys.stdin, sys.stdout)
    _offer(debugger)
    try:
        debugger.run(Target(sys.argv[1:]))
    except (ImportError, OSError, SyntaxError, ValueError) as error:
        traceback.print_exception(type(error), error, None)
        print(f"{type(error).__name__}: {error}", file=debugger.stdout, flush=True)
        sys.exit(1)
    patience = threading.Timer(_LEAVE_S, os._exit, (0,))
    patience.daemon = True
    patience.start()
    sys.exit(0)
