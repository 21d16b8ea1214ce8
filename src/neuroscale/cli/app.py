"""Names the commands, each with its module of `neuroscale.cli`, and runs the one that the command line asks for.

A command returns its exit status. Only the module of the asked command is imported; `--help` prints the summaries of
this table, so it imports none.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, cast

import typer
from typer.core import TyperGroup

from neuroscale import __version__
from neuroscale.core.errors import ExitStatus, NeuroscaleError

_MOST_LINES = 50  # the most lines of an error: a file of a thousand wrong fields is wrong as a whole


class Command(NamedTuple):
    """A command: its module of `neuroscale.cli`, the function there (or the Typer application of a group of commands),
    and the sentence that `--help` prints."""

    module: str
    attribute: str
    summary: str


GROUPS = {  # in the order of the help
    "Decide": {
        "plan": Command("plan", "show_plan", "Show what the platform decides for a request."),
        "model": Command("model", "show_model", "Show a model's parameters, weights, KV cache and state."),
        "fit": Command("fit", "show_fit", "Say whether a model fits an accelerator under vLLM, and why."),
        "speed": Command("speed", "show_speed", "Say how fast a model answers under a load, and how sure that is."),
        "advise": Command("advise", "show_advice", "Set the best choices for a form's answers side by side."),
        "compare": Command("compare", "compare", "Set the measured speed of services or models side by side."),
        "explain": Command("explain", "explain", "Say why a server ended, and which configuration starts."),
    },
    "Change": {
        "new": Command("new", "new", "Fill in the form: plan, render and write a service's folder."),
        "request": Command("request", "request_service", "Ask for a service: open its pull request."),
        "update": Command(
            "update", "update_service", "Change a service's answers or overrides: open its pull request."
        ),
        "promote": Command("promote", "promote_service", "Carry a service's answers into another environment."),
        "retire": Command("retire", "retire_service", "Remove a service, with what it saves and what remains."),
        "restore": Command("retire", "restore_service", "Bring back a service that was removed."),
        "render": Command("render", "render_request", "Render a request and its plan to manifests."),
        "replan": Command("replan", "replan_service", "Plan one service again in its folder: offline."),
        "upgrade": Command("upgrade", "upgrade_services", "Plan services anew where what they came from moved."),
        "gate": Command("gate", "gate", "Judge manifests."),
    },
    "Operate": {
        "status": Command("status", "show_status", "Judge a cluster's services, and print their addresses."),
        "smoke": Command("smoke", "look_at_services", "Test whether deployed services match Git."),
        "history": Command(
            "history", "show_history", "Tell a service's changes: who asked, what changed, when it was live."
        ),
        "metrics": Command("metrics", "show_metrics", "Show a service's latency, tokens, queue and cache."),
        "query": Command("query", "query_service", "Ask a service, and print the figures of the answer."),
        "bench": Command("bench", "bench", "Measure how fast a service or an endpoint answers, with guidellm."),
        "key": Command("key", "manage_key", "Make a service's API key if it is missing, or replace it."),
        "keys": Command("keys", "make_keys", "Make the API keys that an environment's services lack."),
        "serve": Command("serve", "serve_plans", "Serve pages to ask on, and a portal's API."),
        "local": Command("local", "app", "The platform on this machine: forge, runner, cluster and Argo CD."),
        "platform": Command("platform", "app", "Render, install and price a cluster's objects."),
        "tools": Command("tools", "app", "Install the upstream tools that commands run."),
    },
    "Cost": {
        "showback": Command("showback", "show_costs", "Show what services cost, in rows that add up to the bill."),
        "token-cost": Command("token_cost", "show_token_costs", "Show what a million tokens of each service cost."),
        "reconcile": Command("reconcile", "reconcile_costs", "Compare what services cost with what plans said."),
        "prices": Command("prices", "app", "Bring the catalog's prices up to date."),
    },
    "Repository": {
        "repository": Command("repository", "app", "Make an organisation's own repository, and upgrade it."),
        "catalog": Command("catalog", "app", "Add models, find what is out of date, render the form."),
        "policy": Command("policy", "app", "Show, render and create policies."),
        "milestones": Command("milestones", "run_milestones", "Run the lessons: failures, and what prevents them."),
        "demo": Command("demo", "show_demo", "Show the main job from answers to a merge, in a new repository."),
    },
    "For workflows": {
        "comment": Command("comment", "comment_on", "Write the gate's report as the comment of a pull request."),
        "bench-merged": Command("bench", "bench_merged", "Measure the services that the newest merge added."),
        "after-merge": Command("after_merge", "react_to_smoke_tests", "Comment on merges, and revert what fails."),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


class CommandTable(TyperGroup):
    """A group of commands whose modules are imported when they are asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast("Any", dict.fromkeys(COMMANDS))  # names, for `Did you mean`

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command, from its module; None for a name that no command has."""
        command = COMMANDS.get(cmd_name)
        if command is None:
            return None
        implementation = getattr(importlib.import_module(f"neuroscale.cli.{command.module}"), command.attribute)
        holder = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False)
        if isinstance(implementation, typer.Typer):
            holder.add_typer(implementation, name=cmd_name)
        else:
            holder.command(cmd_name)(implementation)
        return typer.main.get_group(holder).commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Print the table of the commands, a section for each group."""
        widest = max(map(len, COMMANDS))
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(widest), command.summary) for name, command in commands.items()])


def _exit(exit_status: int, **_: Any) -> None:
    raise typer.Exit(exit_status)


app = typer.Typer(
    name="neuroscale",
    cls=CommandTable,
    help="From a form's answers to a served open language model: plan, render, gate.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    result_callback=_exit,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run the command line."""
    run(app, "neuroscale")


def single(command: Callable[..., int]) -> typer.Typer:
    """An application of one command, which returns its exit status: for programs of `scripts/`."""

    @functools.wraps(command)
    def exits(*arguments: Any, **options: Any) -> None:
        _exit(command(*arguments, **options))

    application = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None, add_completion=False)
    application.command()(exits)
    return application


def run(application: typer.Typer, name: str) -> None:
    """Run an application. A foreseen error becomes one clear message, and any other error exit status 3."""
    # Looking for garbage among the classes and entries that a command loads, and keeps, takes a tenth of its time.
    gc.set_threshold(200_000, 20, 20)
    try:
        application(prog_name=name)
    except NeuroscaleError as error:
        lines = str(error).splitlines()
        more = [f"and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
        _say("\n".join([*lines[:_MOST_LINES], *more]))
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if os.environ.get("NEUROSCALE_DEBUG"):
            raise
        place = f"{error.filename}: " if error.filename else ""
        _say(f"{place}{error.strerror or error}. The output is not complete.")
        sys.exit(ExitStatus.UNTRUSTED)
    except Exception as error:
        if os.environ.get("NEUROSCALE_DEBUG"):
            raise
        _say(
            f"a defect of this program: {type(error).__name__}: {error}\n"
            "Its output cannot be trusted. Set NEUROSCALE_DEBUG=1 for the details and report it."
        )
        sys.exit(ExitStatus.UNTRUSTED)
    finally:
        # Otherwise the interpreter looks through everything once more as it ends: a fifth of a second after `gate`.
        gc.freeze()


def _say(error: str) -> None:
    """Print an error. It may quote a file, a cluster or a forge, whose text must not reach the terminal as commands."""
    from neuroscale.core.printable import terminal_lines

    print(f"neuroscale: {terminal_lines(error)}", file=sys.stderr)  # noqa: T201
