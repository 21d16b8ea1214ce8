"""Scripts of shells: what they run is what bash runs, and what is not sure is never told as if it were."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from examples import examples
from neuroscale.vllm.command import ServeCommand, serve_command

SERVE = "vllm serve model"
NOTHING: dict[str, str] = {}


def read(script: str, *behind: str, env: dict[str, str] | None = None, shell: str = "bash") -> ServeCommand:
    found = serve_command(
        {
            "image": "vllm/vllm-openai:v0.32.0",
            "command": [shell, "-c", script, *behind],
            "env": [{"name": name, "value": value} for name, value in (env or NOTHING).items()],
        }
    )
    assert found is not None
    return found


def by_bash(folder: Path, script: str, *behind: str, env: dict[str, str] | None = None) -> list[str] | None:
    """The words that vLLM gets, of a real bash; None where it does not get to it."""
    program = folder / "vllm"
    program.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" > '{folder}/words'\n")
    program.chmod(0o755)
    (folder / "words").unlink(missing_ok=True)
    # A pattern finds a file, and no program that a second command could be.
    here = folder / "here"
    here.mkdir(exist_ok=True)
    (here / "file").touch()
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run(
        [bash, "-c", script, *behind],
        env={"PATH": f"{folder}:/usr/bin:/bin", **(env or NOTHING)},
        cwd=here,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    written = folder / "words"
    return written.read_text().split("\0")[1:-1] if written.exists() else None


READ = {
    "plain": (f"{SERVE} --seed 3", (), {}),
    "exec": (f"exec {SERVE} --seed=3", (), {}),
    "lines": (f"set -euo pipefail\ncd /tmp\n{SERVE} \\\n  --seed 3 # a comment\n", (), {}),
    "quotes": (f"""{SERVE} --served-model-name 'a b' "c d" --x='{{"mode": 3}}' e\\ f""", (), {}),
    "no quotes around JSON": (f'{SERVE} --compilation-config={{"mode":3}}', (), {}),
    "a name that is no pattern": (f"{SERVE} --x='*' \\*", (), {}),
    "a variable": (f'LEN=8192; {SERVE} --max-model-len=$LEN "${{LEN}}"', (), {}),
    "split": (f"{SERVE} $EXTRA --last", (), {"EXTRA": " --seed 3 --x "}),
    "not split": (f'{SERVE} "$EXTRA"', (), {"EXTRA": "--seed 3"}),
    "split inside": (f"{SERVE} --served-model-name=$N", (), {"N": "a --max-model-len=131072"}),
    "no expansion": (f"{SERVE} --max-model-len='$LEN'", (), {"LEN": "5"}),
    "an empty default": (f"{SERVE} ${{EXTRA:---max-model-len=131072}}", (), {"EXTRA": ""}),
    "a default for what is not set alone": (f"{SERVE} a ${{EXTRA---max-model-len=131072}} b", (), {"EXTRA": ""}),
    "added to": (f'ARGS="--max-model-len 8192"; ARGS+=" --swap-space 4"; {SERVE} $ARGS', (), {}),
    "a list": (f'ARGS=(--a "b c"); ARGS+=(d); {SERVE} "${{ARGS[@]}}" --last', (), {}),
    "arguments": (f'{SERVE} "$@" $1 ${{2}} "$3"', ("name", "a b", "c"), {}),
    "arguments between others": (f'{SERVE} "x $@ y"', ("name", "a b", "c"), {}),
    "set arguments": (f'set -- --swap-space 4; {SERVE} "$@"', ("name", "gone"), {}),
    "shifted": (f'shift; {SERVE} "$@"', ("name", "gone", "kept"), {}),
    "behind a redirection": (f"{SERVE} --a > log --swap-space=4 2>&1 | cat", (), {}),
    "a number before a redirection": (f"{SERVE} --tensor-parallel-size 2 >> log", (), {}),
    "a chain": (f"export A=1 && mkdir -p x && B=2 && {SERVE} $A $B && echo done || echo failed", (), {}),
    "eval": (f"""eval "exec {SERVE} $EXTRA $@" """, ("name", "--x='{\"mode\": 3}'", "--seed 3"), {"EXTRA": ""}),
    "eval of JSON without quotes": (f'eval "{SERVE} $@"', ("name", '--x={"mode": 3}'), {}),
    "env": (f"env A=1 {SERVE} --seed 3", (), {}),
    "a prefix": (f"A=1 {SERVE} --seed 3", (), {}),
    "an unset argument": (f"{SERVE} --x $7 y", ("name",), {}),
    "escapes": (f'{SERVE} "a\\"b\\$c\\d" a\\"b \\$d', (), {}),
}


@pytest.mark.parametrize("name", READ)
def test_a_script_runs_what_bash_runs(tmp_path: Path, name: str) -> None:
    script, behind, env = READ[name]
    found = read(script, *behind, env=env)
    assert not found.unreadable
    assert [word.text for word in found.words] == by_bash(tmp_path, script, *behind, env=env)


UNKNOWN = {
    "another command's output": f"{SERVE} --tensor-parallel-size=$(nproc)",
    "backticks": f"{SERVE} --tensor-parallel-size=`nproc`",
    "output in a variable": f"TP=$(nvidia-smi -L | wc -l); {SERVE} --tensor-parallel-size=$TP",
    "a condition": f"LEN=8192; if true; then LEN=131072; fi; {SERVE} --max-model-len=$LEN",
    "a short condition": f"LEN=8192; [ -f x ] && LEN=131072; {SERVE} --max-model-len=$LEN",
    "a failure": f"LEN=8192; [ -f x ] || LEN=131072; {SERVE} --max-model-len=$LEN",
    "a loop": f'for A in --swap-space=4; do X="$X $A"; done; {SERVE} $X',
    "a case": f"LEN=1; case $A in x) LEN=2;; esac; {SERVE} --max-model-len=$LEN",
    "another file": f"LEN=8192; . ./vllm.env; {SERVE} --max-model-len=$LEN",
    "another file in a condition": f"LEN=8192; if [ -f x ]; then source x; fi; {SERVE} --max-model-len=$LEN",
    "input": f"read LEN; {SERVE} --max-model-len=$LEN",
    "unset": f"unset LEN; {SERVE} --max-model-len=$LEN",
    "from elsewhere": f"{SERVE} --max-model-len=$LEN",
    "kept through an assignment": f'ARGS="--served-model-name $X"; {SERVE} $ARGS',
    "other expansions": f"{SERVE} ${{SEED:+--seed=$SEED}}",
    "a part": f"LEN=12; {SERVE} --x=${{LEN%2}}",
    "braces": f"{SERVE} --x={{1,2}}",
    "a range": f"{SERVE} {{1..3}}",
    "a pattern": f"{SERVE} --x=[1] *",
    "a pattern in a variable": f"A='*'; {SERVE} $A",
    "a function that is called later": f"f() {{ LEN=2; }}; LEN=1; f; {SERVE} --max-model-len=$LEN",
    "home": f"{SERVE} ~/model",
    "arithmetic": f"{SERVE} --x=$((1 + 1))",
    "arguments that a condition sets": f'if true; then set -- a; fi; {SERVE} "$@"',
    "through eval": f'eval "{SERVE} $LEN"',
    "an item of a list": f"A=(1 2); {SERVE} ${{A[0]}}",
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_word_that_is_not_sure_is_not_known(name: str) -> None:
    found = read(UNKNOWN[name])
    assert found.unreadable
    assert any(word.unknown for word in found.words)


UNREADABLE = {
    "a condition": f"if true; then {SERVE}; fi",
    "twice": f"{SERVE} & {SERVE}",
    "instead of another": f"false || {SERVE}",
    "another shell": f"sh -c '{SERVE}'",
    "another user": f"su vllm -c '{SERVE}'",
    "a text for a shell": f"sh <<EOF\n{SERVE}\nEOF",
    "a function": f"f() {{ {SERVE}; }}; f",
    "no grammar": f"if {SERVE}",
    "not at all": "/start.sh",
    "words that a shell prints": f"echo {SERVE}",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_script_that_cannot_be_followed_is_said_to_be_unreadable(name: str) -> None:
    found = read(UNREADABLE[name])
    assert found.unreadable
    assert not found.words


def test_variables_that_reach_the_server() -> None:
    script = f"export A=1; B=2; export C=$(date); export D; E=5 env F=6 {SERVE}"
    found = read(script, env={"B": "0", "D": "4", "G": "7"})
    assert found.environment == {"A": "1", "B": "2", "D": "4", "E": "5", "F": "6", "G": "7"}
    assert set(found.hidden) == {"C"}


@pytest.mark.parametrize(
    "words",
    [
        ["bash", "-c", "vllm", "serve", "model"],
        ["/bin/bash", "-c", "python3", "-m", "vllm.entrypoints.openai.api_server"],
        ["echo", "vllm", "serve"],
        ["/start.sh", "vllm", "serve"],
    ],
)
def test_words_that_are_no_start_are_none(words: list[str]) -> None:
    found = serve_command({"image": "vllm/vllm-openai:v0.32.0", "command": words})
    assert found is not None
    assert found.unreadable
    assert not found.words


@pytest.mark.parametrize(
    "words",
    [
        ["vllm", "serve", "model"],
        ["/usr/local/bin/vllm", "serve", "model"],
        ["python3", "-u", "-X", "dev", "-m", "vllm.entrypoints.cli.main", "serve", "model"],
        ["tini", "--", "vllm", "serve", "model"],
        ["timeout", "-k", "5", "600", "env", "A=1", "vllm", "serve", "model"],
        ["tini", "--", "sh", "-c", "exec vllm serve model"],
    ],
)
def test_programs_that_start_another_are_looked_through(words: list[str]) -> None:
    found = serve_command({"image": "vllm/vllm-openai:v0.32.0", "command": words})
    assert found is not None
    assert ([word.text for word in found.words], found.unreadable) == (["model"], ())


def test_an_image_that_serves_takes_every_argument_as_its_own() -> None:
    for args in (
        ["vllm", "serve", "model"],
        ["sh", "-c", SERVE],
        ["python3", "-m", "vllm.entrypoints.openai.api_server"],
    ):
        found = serve_command({"image": "vllm/vllm-openai:v0.32.0", "args": args})
        assert found is not None
        assert [word.text for word in found.words] == args


BOMBS = {
    "variables": "A0=xxxxxxxx\n" + "".join(f"A{n}=$A{n - 1}$A{n - 1}\n" for n in range(1, 60)) + f"{SERVE} $A59",
    "one variable": "A=xxxxxxxx\n" + "A+=$A\n" * 60 + f"{SERVE} $A",
    "arguments": "set -- a b\n" + 'set -- "$@" "$@"\n' * 60 + f"{SERVE} $@",
    "a list": "A=(a b)\n" + 'A+=("${A[@]}")\n' * 60 + f"{SERVE}",
    "shells": "".join(f"A{n}=1\n" for n in range(3_000)) + "true | true\n" * 3_000 + SERVE,
    "depth": "true && " * 30_000 + SERVE,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_short_script_does_not_take_the_memory_of_the_machine(name: str) -> None:
    """Each of its lines may double what the one before made. It is read in a fraction of a second, and not in full."""
    assert read(BOMBS[name]).unreadable


def test_variables_that_hold_one_another_twice_do_not_take_the_memory_of_the_machine() -> None:
    env = [{"name": "A0", "value": "x" * 8}]
    env += [{"name": f"A{n}", "value": f"$(A{n - 1})$(A{n - 1})"} for n in range(1, 60)]
    found = serve_command({"image": "vllm/vllm-openai:v0.32.0", "env": env, "args": ["model", "--seed=$(A59)"]})
    assert found is not None
    assert found.unreadable
    assert found.environment["A5"] == "x" * 8 * 2**5


def test_what_a_variable_takes_from_a_hidden_one_is_hidden() -> None:
    env = [{"name": "B", "valueFrom": {"secretKeyRef": {}}}, {"name": "A", "value": "x$(B)"}]
    found = serve_command({"image": "vllm/vllm-openai:v0.32.0", "env": env, "args": ["model", "--seed=$(A)"]})
    assert found is not None
    assert found.unreadable
    elsewhere = {"image": "vllm/vllm-openai:v0.32.0", "envFrom": [{}], "command": ["sh", "-c", f"{SERVE} ${{L:-1}}"]}
    found = serve_command(elsewhere)
    assert found is not None
    assert found.unreadable


_TOKENS = [
    *(
        "$X",
        '"$X"',
        "'a b'",
        '"a $X b"',
        "${X}",
        "${X:-d e}",
        '"${X-q}"',
        '{"a": 1}',
        "'{\"a\": 1}'",
        "--x=",
        "--y",
        "a\\ b",
    ),
    *(
        "$@",
        '"$@"',
        "$1",
        "> log",
        "2>&1",
        "| cat",
        "&& true",
        ";",
        "# c",
        "\\\n",
        "\n",
        "$(echo a)",
        "A=1",
        "$A",
        "export A",
    ),
    *("$", "~", "*", "[1]", "{a,b}", "$'x'", '""', "''", "!", "=", "==", "(", ")", '--z={"a":$X}', "<", "2>", "&", "%"),
    *(
        "`",
        "$[",
        "^",
        "|&",
        ">&",
        "-",
        "--",
        " ",
        "\t",
        "}",
        "]",
        "\\",
        "'",
        '"',
        "1",
        "+=",
        "X=2",
        "shift",
        "set --",
        "eval",
    ),
]


@settings(max_examples=examples(80), deadline=None)
@given(
    before=st.sampled_from(
        ["", "A='q r'; ", "export X; ", "A=$X; ", 'A="$X" ; ', "if true; then X=1; fi; ", "shift; "]
    ),
    texts=st.lists(st.sampled_from(_TOKENS), max_size=5),
    between=st.sampled_from(["", " "]),
    value=st.sampled_from(["", "a", "a b", " c ", "*", '--k={"a": 1}', "'"]),
)
def test_whatever_is_read_is_what_bash_runs(
    before: str, texts: list[str], between: str, value: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Or it is said not to be known."""
    script = f"{before}{SERVE} {between.join(texts)}"
    assume("$$" not in script)  # a kubelet makes one of two
    behind = ("name", "p q", "r")
    found = read(script, *behind, env={"X": value})
    if found.unreadable:
        return
    folder = tmp_path_factory.getbasetemp() / "bash"
    folder.mkdir(exist_ok=True)
    real = by_bash(folder, script, *behind, env={"X": value})
    if real is not None:
        assert [word.text for word in found.words] == real, json.dumps([script, value])
