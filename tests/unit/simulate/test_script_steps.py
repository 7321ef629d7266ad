"""What a script needs, told from its text alone."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunnelkit.simulate.output_paths import output_directories
from tunnelkit.simulate.script_steps import ScriptNeeds, Step, command_needs, script_needs
from tunnelkit.simulate.shell_lines import simple_commands


def needs(text: str, first: str = "#!/bin/bash") -> ScriptNeeds:
    return script_needs(f"{first}\n{text}\n".encode())


def steps(text: str) -> list[tuple[str, ...]]:
    return [(one.kind, *one.words) for one in needs(text).steps]


def test_the_usual_script() -> None:
    text = (
        "#SBATCH -c 2\nmodule purge\nmodule load gcc cuda/12.4\nml python\n"
        'VENV="$HOME/venvs/t"\nsource $VENV/bin/activate\n'
        'cd "$SLURM_SUBMIT_DIR"\ncd src\nexport PYTHONPATH=lib:$PYTHONPATH OMP_NUM_THREADS=2\n'
        "srun --ntasks=2 -c 1 python -u -X dev train.py --epochs 3 > out.txt 2>&1\n"
    )
    found = needs(text)
    assert found.steps == (
        Step("module", ("purge",), 3),
        Step("module", ("load", "gcc"), 4),
        Step("module", ("load", "cuda/12.4"), 4),
        Step("module", ("load", "python"), 5),
        Step("venv", ("$HOME/venvs/t",), 7),
        Step("cd", ("src",), 9),
        Step("export", ("PYTHONPATH", "lib:$PYTHONPATH"), 10),
        Step("python", ("python", "file", "train.py"), 11),
    )
    assert found.interpreter == ("/bin/bash",)


PYTHON = [("python", "python", "file", "a.py")]


@pytest.mark.parametrize(
    "text, found",
    [
        ("python -m pkg.mod -x", [("python", "python", "module", "pkg.mod")]),
        ("torchrun --nproc_per_node=2 a.py", [("python", "python", "file", "a.py")]),
        ("~/v/bin/torchrun a.py", [("python", "~/v/bin/python", "file", "a.py")]),
        ("python3 -m torch.distributed.run a.py", [("python", "python3", "file", "a.py")]),
        ("env A=1 nohup python a.py &", [("python", "python", "file", "a.py")]),
        ("A=b python a.py || exit 1", [("python", "python", "file", "a.py")]),
        ("mpirun -np 4 --bind-to core python a.py", [("python", "python", "file", "a.py")]),
        (
            "PYTHONPATH=x python a.py",
            [("export", "PYTHONPATH", "x"), ("python", "python", "file", "a.py")],
        ),
        ("conda activate base", [("conda", "base")]),
        # They only make commands known.
        (". /etc/profile.d/modules.sh\nsource $LMOD_PKG/init/bash\npython a.py", PYTHON),
        ("source ~/miniforge3/etc/profile.d/conda.sh\nconda activate t", [("conda", "t")]),
        # Every shell has a PATH to hand on.
        ("PATH=/opt/e/bin:$PATH\npython a.py", [("export", "PATH", "/opt/e/bin:$PATH"), *PYTHON]),
        ("PATH=/e:$PATH python a.py", [("export", "PATH", "/e:$PATH"), *PYTHON]),
        ("PATH=/e:$PATH make\nA=b\npython a.py", PYTHON),
        ("MODULEPATH=/m\nmodule load x",
         [("export", "MODULEPATH", "/m"), ("module", "load", "x")]),
        ("source activate torch", [("conda", "torch")]),
        ("python a.py \\\n  --more", [("python", "python", "file", "a.py")]),
        ("for i in 1 2; do python a.py; done", [("python", "python", "file", "a.py")]),
        # None of these can be told, or need not run.
        ("python -c 'import x'", []),
        ("python - <<EOF\nimport x\npython b.py\nEOF", []),
        ("if true; then python a.py; fi", []),
        ("f() {\n  python a.py\n}", []),
        ("test -f x || python a.py", []),
        ("apptainer exec i.sif python a.py", []),
        ("python $(which a).py", []),
        ("echo python a.py", []),
        ("python \"$1\"", []),
        # Strings and here-documents are no commands of the script's.
        ('apptainer exec i.sif bash -c "\nsource /v/bin/activate\npython a.py\n"', []),
        ("ssh other '\nmodule load x\npython a.py'", []),
        ("cat >x <<'END-OF-DOC'\ncd /\npython b.py\nEND-OF-DOC\npython a.py", PYTHON),
        ('read A <<<"one"\nN=$((1<<k))\npython a.py  # don\'t', PYTHON),
        # An image has its own Python.
        ("srun --container-image=nvcr.io#x:1 python a.py", []),
        ("srun -n 1 --container-name x python a.py", []),
        ("srun python a.py --container-image=x", PYTHON),
        # A job has these.
        ("cd ${SLURM_SUBMIT_DIR:-.}\npython a.py", PYTHON),
        ("cd ${PBS_O_WORKDIR:-${SLURM_SUBMIT_DIR}}\npython a.py", PYTHON),
        ("cd ${SLURM_SUBMIT_DIR-$HOME}/b\npython a.py", [("cd", "./b"), *PYTHON]),
        # After && behind what may well fail; not behind what prepares the rest.
        ("[ -f x ] && python a.py", []),
        ("z | grep -q x && python a.py", []),
        ("! z && python a.py", []),
        ("z || python a.py && python a.py", []),
        ("z | tee x && python a.py", PYTHON),
        ("rm -rf out && srun python a.py", PYTHON),
        ("nvidia-smi && tar xf d.tar && cd b && python a.py", [("cd", "b"), *PYTHON]),
        # Where it was then.
        ("cd a\nR=$(pwd)\nsource $R/v/bin/activate",
         [("cd", "a"), ("venv", "$PWD/v")]),
        ("R=$PWD\ncd a\nsource $R/v/bin/activate", [("cd", "a")]),
        ("R=`pwd`\n(cd a; make)\nsource $R/v/bin/activate", [("venv", "$PWD/v")]),
        # What is set to something.
        ("if x; then R=a; else R=b; fi\nexport PYTHONPATH=${R}c\npython a.py", []),
        ("read R\nexport PYTHONPATH=$R/src\npython a.py", []),
        ("for R in a b; do export PYTHONPATH=$R; python a.py; done", []),
        # A list in a subshell ends with it.
        ("[ -d x ] && (echo a; python b.py)\npython a.py", PYTHON),
        ("z || (cd x && python b.py)\nmodule load y", [("module", "load", "y")]),
        # A subshell runs what it holds, and sets nothing.
        ("(python a.py) > log", PYTHON),
        ("time ( python a.py )", PYTHON),
        ("(cd x; make); python a.py", PYTHON),
        ("(cd x; V=b); module load $V; python a.py", []),
        ("V=a; (V=b; make)\npython $V.py", PYTHON),
        ("[ -f x ] &&\n  # why\n  python a.py\npython a.py", PYTHON),
        ("cd b && A=1 && mkdir -p c && python a.py", [("cd", "b"), *PYTHON]),
        ("module load x && conda activate t && python a.py",
         [("module", "load", "x"), ("conda", "t"), *PYTHON]),
        # After a place that is not known nothing is.
        ("cd $TMPDIR\npython a.py", []),
        ("module load $M\npython a.py", []),
        ("'", []),
    ],
)  # fmt: skip
def test_commands(text: str, found: list[tuple[str, ...]]) -> None:
    assert steps(text) == found


@pytest.mark.parametrize(
    "text, found, unread",
    [
        # Which environment the program gets is not known: its imports are not looked for.
        ("[ -f venv/bin/activate ] && source venv/bin/activate\npython a.py", [], 2),
        ("if [ -f v ]; then\n  source v/bin/activate\nfi\npython a.py", [], 3),
        ("command -v module && module load x\npython a.py", [], 2),
        ("test y &&\n  conda activate x\nmodule load y\npython a.py",
         [("module", "load", "y")], 3),
        ("f() {\n  export PYTHONPATH=x\n}\npython a.py", [], 3),
        ("(cd x; python a.py)\npython a.py", PYTHON, 2),
        ("(. v/bin/activate; ./a.sh)\npython a.py", PYTHON, 2),
        ('cd "$(dirname "$(readlink -f "$0")")"\n./a.sh', [], 2),
        ("V=a\n[ -d b ] && V=b\nsource $V/bin/activate\npython a.py", [], 4),
        # One that is entered in any case has its own interpreter.
        ("type module && module load x\nconda activate t\npython a.py",
         [("conda", "t"), *PYTHON], 0),
        # It is made where it is not there.
        ("[ -d v ] || python3 -m venv v\nsource v/bin/activate\npython a.py", [], 3),
        ("if [ ! -d v ]; then\n  virtualenv -p python3 ./v\nfi\n. v/bin/activate", [], 0),
        ("uv venv\nsource .venv/bin/activate\npython a.py", [], 3),
        ("conda create -y -n t python=3.12\nconda activate t\npython a.py", [], 3),
        ("export PYTHONPATH=$(git rev-parse --show-toplevel)/lib\npython a.py", [], 2),
        ("PYTHONPATH=$SLURM_TMPDIR/lib\nexport PYTHONPATH=${PBS_JOBDIR}/x\npython a.py", [], 3),
        ("module load $M\nmodule load y\nconda activate t", [("conda", "t")], 2),
        # The user's own file may set anything.
        ("source ~/setup_env.sh\npython a.py", [], 2),
        (". ./env.sh && python a.py", [], 2),
        ("source ~/.bashrc\nmodule load x\nconda activate t\npython a.py",
         [("conda", "t"), *PYTHON], 2),
        ("spack load py-torch\npython a.py", [], 2),
        ("PATH=$SLURM_TMPDIR/bin:$PATH\npython a.py", [], 2),
        # What it installs need not be there yet.
        ("pip install -r requirements.txt\npython a.py", [], 2),
        ("source v/bin/activate\nuv pip install torch\npython a.py", [("venv", "v")], 3),
        ("python -m pip install -e .\npython a.py", [], 2),
        ("srun -n1 conda install -y numpy\npython a.py", [], 2),
        ("(pip3 install x)\npython a.py", [], 2),
        ("echo pip install\npip list\npython a.py", PYTHON, 0),
        # Nothing is left out.
        ("python a.py\ncd $TMPDIR", PYTHON, 0),
        ("if x; then PYTHONPATH=y python b.py; fi\npython a.py", PYTHON, 0),
    ],
)  # fmt: skip
def test_what_only_the_job_will_know(text: str, found: list[tuple[str, ...]], unread: int) -> None:
    read = needs(text)
    assert [(one.kind, *one.words) for one in read.steps] == found
    assert (read.unread, read.programs) == (unread, ())


def test_interpreters() -> None:
    assert needs("x", "#!/bin/bash -l").login
    assert needs("x", "#!/usr/bin/env -S bash --login").login
    python = needs("import numpy", "#!/usr/bin/env python3")
    assert python.is_python and python.steps[0].words == ("python3", "text", "the script")
    assert needs("python a.py", "#!/bin/tcsh").steps == ()
    assert script_needs(b"").interpreter == ()


def test_programs_by_path() -> None:
    assert needs("./prepare.sh a\n/opt/x/run\n../b.py").programs == (
        ("./prepare.sh", 2),
        ("../b.py", 4),
    )


def test_a_command_is_as_a_script_of_it() -> None:
    found = command_needs(["srun", "python", "my file.py"])
    assert [one.words for one in found.steps] == [("python", "file", "my file.py")]


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    needs(text)
    script_needs(text.encode("utf-8", "surrogatepass"))


WORDS = st.text(
    st.characters(exclude_characters="\0\n\r", exclude_categories=["Cs"]), min_size=1, max_size=20
)


@given(st.lists(WORDS, min_size=1, max_size=6))
def test_quoted_words_arrive_whole(words: list[str]) -> None:
    """A name with any quote or operator in it is one word."""
    line = shlex.join(["prog", *words])
    plain = [word for word in words if not set(word) & set("$`#(){}<>")]
    if plain != words or any(word in ("||", "&&") for word in words):
        return
    (found,) = simple_commands(line)
    assert list(found.words) == ["prog", *words]


@pytest.mark.parametrize(
    "path, found",
    [
        ("logs/%j.out", ["logs/_"]),
        ("%x.out", ["_"]),
        ("out/%x/log", ["out/my_name/log"]),
        ("out/%j/log", []),
        ("a%%b/x", ["a%b/x"]),
    ],
)
def test_directories_of_outputs(path: str, found: list[str]) -> None:
    assert output_directories([path], "my_name") == found


def test_a_string_over_many_lines_is_not_taken_apart() -> None:
    """An archive in a script: shlex takes a time that grows with the square of its size."""
    rows = "\n".join(["x" * 76] * 1000)
    assert [one.kind for one in needs(f"P='{rows}'\npython a.py").steps] == ["python"]
    assert needs(f"python {'x' * 70_000}.py").steps == ()


@pytest.mark.parametrize(
    ("line", "makes"),
    [
        ("source /etc/profile.d/modules.sh", 0),
        ('. "$HOME/miniforge3/etc/profile.d/conda.sh"  # conda', 0),
        ("git rev-parse HEAD", 0),
        ("git clone https://h/x", 2),
        ("./prepare.sh", 2),
        ("cat > run.py <<X", 2),
    ],
)
def test_lines_that_may_make_a_file(line: str, makes: int) -> None:
    assert script_needs(f"#!/bin/bash\n{line}\npython run.py\n".encode()).makes == makes
