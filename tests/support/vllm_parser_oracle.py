"""Answers with vLLM's own parser. The Python of the serving packages runs it; it answers each JSON line with a line.

Input: `{"program": "serve" | "module", "words": [...]}`. Output: `{"accepted": bool, "told": text, "values": {dest:
value}}`, without values that are objects of vLLM's own.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import sys
from typing import Any


def _module(name: str) -> Any:
    return importlib.import_module(f"vllm.{name}")


def _parsers() -> dict[str, Any]:
    flexible = _module("utils.argparse_utils").FlexibleArgumentParser
    serve = flexible(description="vLLM CLI")
    commands = serve.add_subparsers(required=False, dest="subparser")
    for command in _module("entrypoints.cli.serve").cmd_init():
        command.subparser_init(commands)
    module = _module("entrypoints.launchers.cli_args").make_arg_parser(flexible(description="server"))
    for parser in (serve, module, commands.choices["serve"]):
        parser.error = _refuse
    return {"serve": serve, "module": module}


class _Refused(Exception):  # noqa: N818
    pass


def _refuse(message: str) -> None:
    raise _Refused(message)


def _answer(parsers: dict[str, Any], program: str, words: list[str]) -> dict[str, Any]:
    arguments = ["serve", *words] if program == "serve" else list(words)
    try:
        found: argparse.Namespace = parsers[program].parse_args(arguments)
    except BaseException as error:
        return {"accepted": False, "told": f"{type(error).__name__}: {error}", "values": {}}
    values = {}
    for name, value in vars(found).items():
        with contextlib.suppress(TypeError, ValueError):
            values[name] = json.loads(json.dumps(value))
    if values.get("model_tag") is not None and program == "serve":
        values["model"] = values["model_tag"]
    return {"accepted": True, "told": "", "values": values}


def main() -> None:
    """Answer until standard input ends."""
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        parsers = _parsers()
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            question = json.loads(line)
            print(json.dumps(_answer(parsers, question["program"], question["words"])), file=answers, flush=True)


if __name__ == "__main__":
    main()
