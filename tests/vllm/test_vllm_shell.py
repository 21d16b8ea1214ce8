"""Scripts of shells: one command in plain words runs what bash runs, and every other script counts as unread."""

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


def command_of(**container: object) -> ServeCommand:
    command = serve_command({"image": "vllm/vllm-openai:v0.32.0", **container})
    assert command is not None
    return command


def read(script: str, *behind: str) -> ServeCommand:
    return command_of(command=["bash", "-c", script, *behind])


def by_bash(folder: Path, script: str, *behind: str) -> list[str] | None:
    """The words that vLLM gets from a real bash; None where bash does not get to vLLM."""
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
        env={"PATH": f"{folder}:/usr/bin:/bin", "X": "a b"},
        cwd=here,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    written = folder / "words"
    return written.read_text().split("\0")[1:-1] if written.exists() else None


PLAIN = {
    "plain": f"{SERVE} --seed 3",
    "exec": f"exec {SERVE} --seed=3",
    "lines": f"\n{SERVE} \\\n  --seed 3 \\\n--x\\\ny\n",
    "quotes": f"""{SERVE} --served-model-name 'a b' "c d" --x='{{"mode": 3}}' e\\ f ''""",
    "a name that is no pattern": f"{SERVE} --x='*' \\*",
    "no expansion": f"{SERVE} --max-model-len='$LEN' '\\'",
    "env": f"env A=1 {SERVE} --seed 3",
    "a prefix": f"A=1 B='c d' {SERVE} --seed 3",
    "escapes": f'{SERVE} "a\\"b\\\\d" a\\"b \\$d \\\\',
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_script_runs_what_bash_runs(tmp_path: Path, name: str) -> None:
    command = read(PLAIN[name], "name", "unread argument")
    assert not command.unreadable
    assert [word.text for word in command.words] == by_bash(tmp_path, PLAIN[name])


UNREAD = {
    # Words that depend on the script alone, and that only a shell can make out.
    "a setting before": f"set -euo pipefail\ncd /tmp\n{SERVE} --seed 3",
    "a comment": f"{SERVE} --seed 3 # a comment",
    "no quotes around JSON": f'{SERVE} --compilation-config={{"mode":3}}',
    "a variable": f'LEN=8192; {SERVE} --max-model-len=$LEN "${{LEN}}"',
    "split": f"{SERVE} $EXTRA --last",
    "not split": f'{SERVE} "$EXTRA"',
    "split inside": f"{SERVE} --served-model-name=$N",
    "a default": f"{SERVE} ${{EXTRA:---max-model-len=131072}}",
    "a default for what is not set alone": f"{SERVE} a ${{EXTRA---max-model-len=131072}} b",
    "added to": f'ARGS="--max-model-len 8192"; ARGS+=" --swap-space 4"; {SERVE} $ARGS',
    "a list": f'ARGS=(--a "b c"); ARGS+=(d); {SERVE} "${{ARGS[@]}}" --last',
    "arguments": f'{SERVE} "$@" $1 ${{2}} "$3"',
    "set arguments": f'set -- --swap-space 4; {SERVE} "$@"',
    "shifted": f'shift; {SERVE} "$@"',
    "behind a redirection": f"{SERVE} --a > log --swap-space=4 2>&1 | cat",
    "a number before a redirection": f"{SERVE} --tensor-parallel-size 2 >> log",
    "a chain": f"export A=1 && mkdir -p x && B=2 && {SERVE} $A $B && echo done || echo failed",
    "eval": f'eval "exec {SERVE} $EXTRA $@"',
    "an escaped dollar in quotes": f'{SERVE} "c\\$d"',
    "an exported variable": f"export A=1\n{SERVE}",
    # Words that come from elsewhere.
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
    # Commands that a reader cannot follow.
    "in a condition": f"if true; then {SERVE}; fi",
    "twice": f"{SERVE} & {SERVE}",
    "instead of another": f"false || {SERVE}",
    "another shell": f"sh -c '{SERVE}'",
    "another user": f"su vllm -c '{SERVE}'",
    "a text for a shell": f"sh <<EOF\n{SERVE}\nEOF",
    "a function": f"f() {{ {SERVE}; }}; f",
    "no grammar": f"if {SERVE}",
    "an open quote": f"{SERVE} 'a",
    "words that a shell prints": f"echo {SERVE}",
    "a name in a variable": "A=vllm; $A serve model",
    # Scripts that could double their length with each line, or that are nested deeply.
    "doubled variables": "A0=xxxxxxxx\n"
    + "".join(f"A{n}=$A{n - 1}$A{n - 1}\n" for n in range(1, 60))
    + f"{SERVE} $A59",
    "one doubled variable": "A=xxxxxxxx\n" + "A+=$A\n" * 60 + f"{SERVE} $A",
    "doubled arguments": "set -- a b\n" + 'set -- "$@" "$@"\n' * 60 + f"{SERVE} $@",
    "a doubled list": "A=(a b)\n" + 'A+=("${A[@]}")\n' * 60 + f"{SERVE}",
    "shells": "".join(f"A{n}=1\n" for n in range(3_000)) + "true | true\n" * 3_000 + SERVE,
    "depth": "true && " * 30_000 + SERVE,
}


@pytest.mark.parametrize("name", UNREAD)
def test_every_other_script_counts_as_unread(name: str) -> None:
    command = read(UNREAD[name])
    assert command.unread_script
    assert len(command.unreadable) == 1
    assert not command.words


def test_a_program_that_is_not_vllm_is_named_as_such() -> None:
    command = read("/start.sh")
    assert not command.unread_script
    assert "does not call vLLM" in command.unreadable[0][1]


def test_a_script_that_the_cluster_fills_in_counts_as_unread() -> None:
    command = command_of(command=["sh", "-c", f"{SERVE} $(X)"], env=[{"name": "X", "valueFrom": {"secretKeyRef": {}}}])
    assert command.unread_script
    assert "the variable X gets its value in the cluster" in command.unreadable[0][1]


def test_variables_that_reach_the_server() -> None:
    env = [{"name": "B", "value": "0"}, {"name": "E", "value": "4"}, {"name": "G", "value": "7"}]
    command = command_of(command=["bash", "-c", f"A=1 E='x y' env F=6 {SERVE}"], env=env)
    assert command.environment == {"A": "1", "B": "0", "E": "x y", "F": "6", "G": "7"}


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
    command = command_of(command=words)
    assert command.unreadable
    assert not command.words


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
    command = command_of(command=words)
    assert ([word.text for word in command.words], command.unreadable) == (["model"], ())


@pytest.mark.parametrize(
    "args", [["vllm", "serve", "model"], ["sh", "-c", SERVE], ["python3", "-m", "vllm.entrypoints.openai.api_server"]]
)
def test_an_image_that_serves_takes_every_argument_as_its_own(args: list[str]) -> None:
    assert [word.text for word in command_of(args=args).words] == args


def test_variables_that_hold_one_another_twice_do_not_take_the_memory_of_the_machine() -> None:
    env = [{"name": "A0", "value": "x" * 8}]
    env += [{"name": f"A{n}", "value": f"$(A{n - 1})$(A{n - 1})"} for n in range(1, 60)]
    command = command_of(env=env, args=["model", "--seed=$(A59)"])
    assert command.unreadable
    assert command.environment["A5"] == "x" * 8 * 2**5


def test_what_a_variable_takes_from_a_hidden_one_is_hidden() -> None:
    env = [{"name": "B", "valueFrom": {"secretKeyRef": {}}}, {"name": "A", "value": "x$(B)"}]
    assert command_of(env=env, args=["model", "--seed=$(A)"]).unreadable
    assert command_of(envFrom=[{}], command=["sh", "-c", f"{SERVE} ${{L:-1}}"]).unreadable


_TOKENS = [
    *("$X", '"$X"', "'a b'", '"a $X b"', "${X}", '{"a": 1}', "'{\"a\": 1}'", "--x=", "--y", "a\\ b", "$@", '"$@"'),
    *("> log", "2>&1", "| cat", "&& true", ";", "# c", "\\\n", "\n", "$(echo a)", "A=1", "$", "~", "*", "[1]"),
    *("{a,b}", "$'x'", '""', "''", "!", "=", "==", "(", ")", "<", "2>", "&", "%", "`", "^", ">&", "-", "--", " "),
    *("\t", "}", "]", "\\", "'", '"', "1", "+=", "\r", "\f", "é", '"\\"', '"\\\\"', '"\\a"', "\\\\"),
]


@settings(max_examples=examples(80), deadline=None)
@given(
    before=st.sampled_from(["", "A='q r'; ", "A=1 ", "exec ", "env A=b ", "\\\n", "! ", "'"]),
    texts=st.lists(st.sampled_from(_TOKENS), max_size=5),
    between=st.sampled_from(["", " "]),
)
def test_whatever_is_read_is_what_bash_runs(
    before: str, texts: list[str], between: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Or the script counts as unread."""
    script = f"{before}{SERVE} {between.join(texts)}"
    assume("$$" not in script)  # a kubelet makes one of two
    command = read(script, "name", "p q", "r")
    if command.unreadable:
        return
    folder = tmp_path_factory.getbasetemp() / "bash"
    folder.mkdir(exist_ok=True)
    real = by_bash(folder, script, "name", "p q", "r")
    if real is not None:
        assert [word.text for word in command.words] == real, json.dumps(script)
