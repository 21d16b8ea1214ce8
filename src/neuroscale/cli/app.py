"""Registers the commands, each from its module of `neuroscale.cli`, and runs them.

A command returns its exit status. The modules of the commands are imported for every command, so they import what a
stage needs inside of their functions.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Annotated, Any

import typer

from neuroscale import __version__
from neuroscale.cli import (
    accuracy,
    after_merge,
    catalog,
    comment,
    demo,
    fit,
    gate,
    key,
    keys,
    local,
    metrics,
    milestones,
    model,
    new,
    plan,
    platform,
    policy,
    prices,
    query,
    reconcile,
    render,
    replan,
    request,
    serve,
    showback,
    smoke,
    status,
    token_cost,
)
from neuroscale.core.errors import ExitStatus, NeuroscaleError

_MOST_LINES = 50  # the most lines of an error: a file of a thousand wrong fields is wrong as a whole


def _exit(exit_status: int, **_: Any) -> None:
    raise typer.Exit(exit_status)


app = typer.Typer(
    name="neuroscale",
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


# In the order of the help.
app.command("plan")(plan.show_plan)
app.command("model")(model.show_model)
app.command("fit")(fit.show_fit)
app.command("accuracy")(accuracy.show_accuracy)
app.command("render")(render.render_request)
app.command("replan")(replan.replan_service)
app.command("new")(new.new)
app.command("request")(request.request_service)
app.command("gate")(gate.gate)
app.command("comment")(comment.comment_on)
app.command("keys")(keys.make_keys)
app.command("after-merge")(after_merge.react_to_smoke_tests)
app.command("serve")(serve.serve_plans)
app.command("demo")(demo.show_demo)
app.command("status")(status.show_status)
app.command("smoke")(smoke.look_at_services)
app.command("metrics")(metrics.show_metrics)
app.command("showback")(showback.show_costs)
app.command("token-cost")(token_cost.show_token_costs)
app.command("reconcile")(reconcile.reconcile_costs)
app.command("query")(query.query_service)
app.command("key")(key.manage_key)
app.add_typer(catalog.app)
app.add_typer(prices.app)
app.command("milestones")(milestones.run_milestones)
app.add_typer(local.app)
app.add_typer(platform.app)
app.add_typer(policy.app)


def main() -> None:
    """Run the command line. A foreseen error becomes one clear message, and any other error exit status 3."""
    # Looking for garbage among the classes and entries that a command loads, and keeps, takes a tenth of its time.
    gc.set_threshold(200_000, 20, 20)
    try:
        app(prog_name="neuroscale")
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
