"""Programs in other languages than Python say why they end, each in its own form."""

from __future__ import annotations

import pytest

from tests.unit.diagnosis.ended_cases import job, verdict
from tunnelkit.diagnosis.evidence.end import StepView
from tunnelkit.diagnosis.verdict import Certainty

FORRTL = """\
forrtl: severe ({}): {}
Image              PC                Routine            Line        Source
model.exe          000000000040B2C4  Unknown               Unknown  Unknown
libc-2.28.so       00007F1E2A0CDCF3  __libc_start_main     Unknown  Unknown
"""
GFORTRAN = """\
At line 12 of file model.f90 (unit = 10, file = 'in.dat')
Fortran runtime error: End of file

Error termination. Backtrace:
#0  0x7f2b1e in ???
"""
R_OPEN = """\
Loading required package: Matrix
Error in readRDS("fit.rds") : cannot open the connection
In addition: Warning message:
In readRDS("fit.rds") :
  cannot open compressed file 'fit.rds', probable reason 'No such file or directory'
Execution halted
"""
R_LONG = """\
Error in solve.default(x) :
  Lapack routine dgesv: system is exactly singular: U[2,2] = 0
Calls: solve -> solve.default
Execution halted
"""
JULIA = """\
ERROR: LoadError: UndefVarError: `foo` not defined
Stacktrace:
 [1] top-level scope
   @ /h/a.jl:3
in expression starting at /h/a.jl:3
"""
MATLAB = """\
Error using load
Unable to find file or directory 'x.mat'.

Error in train (line 3)
"""
JAVA = """\
Exception in thread "main" java.lang.IllegalStateException: no input
\tat Main.main(Main.java:5)
"""
RUST = """\
thread 'main' panicked at src/main.rs:2:5:
index out of bounds: the len is 3 but the index is 7
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
"""
GO = """\
panic: runtime error: index out of range [5] with length 3

goroutine 1 [running]:
main.f()
"""
TERMINATE = """\
terminate called after throwing an instance of 'std::runtime_error'
  what():  no such mesh
"""
ASSERT = "solver: mesh.cpp:88: void Mesh::read(): Assertion `n > 0' failed.\n"


@pytest.mark.parametrize(
    ("code", "text", "sentence"),
    [
        (24, FORRTL.format(24, "end-of-file during read, unit 10, file /h/in.dat"),
         "Fortran: severe (24): end-of-file during read, unit 10, file /h/in.dat"),
        (2, GFORTRAN, "Fortran: End of file"),
        (1, "ERROR STOP no convergence\n", "Fortran: ERROR STOP no convergence"),
        (1, R_OPEN, 'R: Error in readRDS("fit.rds") : cannot open the connection'),
        (1, R_LONG, "R: Error in solve.default(x) : Lapack routine dgesv: system is exactly "
                    "singular: U[2,2] = 0"),
        (1, "Error: object 'x' not found\nExecution halted\n", "R: Error: object 'x' not found"),
        # A handled error stands before the one that ended it.
        (1, "Error in try(f()) : skipped\n" + R_LONG, "R: Error in solve.default(x) : Lapack "
            "routine dgesv: system is exactly singular: U[2,2] = 0"),
        (1, JULIA, "Julia: UndefVarError: `foo` not defined"),
        (1, MATLAB, "MATLAB: Error using load"),
        (1, JAVA, "Java: java.lang.IllegalStateException: no input"),
        (101, RUST, "Rust: src/main.rs:2:5: index out of bounds: the len is 3 but the index is 7"),
        (101, RUST.replace("'main'", "'main' (4242)"),
         "Rust: src/main.rs:2:5: index out of bounds: the len is 3 but the index is 7"),
        (2, GO, "Go: runtime error: index out of range [5] with length 3"),
        # The first of two ranks.
        (1, "[rank1]: " + JAVA + JAVA.replace("no input", "gone"),
         "Java: java.lang.IllegalStateException: no input"),
    ],
)  # fmt: skip
def test_the_runtimes_words_are_the_reason(code: int, text: str, sentence: str) -> None:
    found = verdict(job("FAILED", code), "step 1\n" + text)
    assert (found.code, found.sentence) == ("exception", f"failed: {sentence}")
    assert found.certainty is Certainty.LIKELY
    # An MPI launcher's code is another one than its step's.
    found = verdict(job("FAILED", code), text, steps=(StepView("0", "x", "FAILED", code, 0),))
    assert found.code == "exception"


def test_forrtl_names_a_segmentation_fault_by_its_own_number() -> None:
    text = FORRTL.format(174, "SIGSEGV, segmentation fault occurred")
    found = verdict(job("FAILED", 174), text)
    assert found.code == "segfault"
    assert found.sentence == "failed: Fortran: severe (174): SIGSEGV, segmentation fault occurred"
    assert found.certainty is Certainty.LIKELY


@pytest.mark.parametrize(
    ("code", "text"),
    [
        # Not the code of R, Julia, Rust.
        (3, R_OPEN), (3, JULIA), (3, RUST),
        # No last words: R went on, a compiler's `Error:`, a TERM that Fortran received.
        (1, R_OPEN.replace("Execution halted\n", "")),
        (1, "Error: mesh is coarse\n"),
        (78, FORRTL.format(78, "process killed (SIGTERM)")),
        # The script went on.
        (1, JAVA + "step\n" * 100),
    ],
)  # fmt: skip
def test_other_words_are_none(code: int, text: str) -> None:
    assert verdict(job("FAILED", code), text).code == "exit-unknown"


def test_a_job_that_ended_well_has_no_last_words() -> None:
    assert verdict(job("COMPLETED"), JAVA).code == "ok"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TERMINATE, "std::runtime_error: no such mesh"),
        (ASSERT, "Assertion `n > 0' failed, at mesh.cpp:88"),
        (TERMINATE.replace("runtime_error", "bad_alloc"),
         "malloc had no memory to give (std::bad_alloc)"),
    ],
)  # fmt: skip
def test_who_aborts_says_why(text: str, words: str) -> None:
    found = verdict(job("FAILED", 0, 6), "step\n" + text)
    assert (found.code, found.sentence) == ("abort", f"failed: it aborted: {words}")
    assert found.certainty is Certainty.PROVEN
