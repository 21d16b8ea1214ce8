"""The command line: one command a stage. Each command lives in a module of `neuroscale.cli`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from neuroscale import __version__
from neuroscale.core.errors import ExitStatus, NeuroscaleError

app = typer.Typer(
    name="neuroscale",
    help="From a form's answers to a served open language model: plan, render, gate.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)

_MOST_LINES = 50  # of an error: a file of a thousand wrong fields is wrong as a whole

RepositoryOption = Annotated[
    Path | None,
    typer.Option("--repository", help="The platform repository. Default: the one that the current folder lies in."),
]
KubeconfigOption = Annotated[Path | None, typer.Option("--kubeconfig", help="Default: $KUBECONFIG, or ~/.kube/config.")]
ContextOption = Annotated[
    str | None, typer.Option("--context", help="The kubeconfig context of the cluster. Default: the current one.")
]
PlatformOption = Annotated[Path | None, typer.Option("--state", help="The folder of a local platform to ask.")]
PictureOption = Annotated[
    Path | None, typer.Option("--picture", help="Draw the memory of one accelerator into this file (.svg or .png).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]


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


@app.command()
def plan(
    request: Annotated[Path, typer.Argument(help="A request.yaml, or a file with a form's answers.")],
    context: Annotated[
        str | None, typer.Option("--context", help="Compare with the nodes and quotas of this kubeconfig context.")
    ] = None,
    kubeconfig: KubeconfigOption = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> None:
    """Show what the platform decides for a request: accelerator, memory, flags, price. Exit status 1: refused, or the
    cluster has no room for it now."""
    from neuroscale.cli.plan import Target, show_plan

    target = None if context is None and kubeconfig is None else Target(context, kubeconfig)
    raise typer.Exit(show_plan(request, repository, as_json=as_json, target=target, picture=picture))


@app.command()
def model(
    name: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|PATH", help="A model of the catalog, a folder, a config.json, or a model of the Hub."
        ),
    ],
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> None:
    """Show what is known of a model: parameters, active ones in both conventions, weights by group, KV cache."""
    from neuroscale.cli.model import show_model

    raise typer.Exit(show_model(name, repository, as_json=as_json))


@app.command()
def fit(
    model: Annotated[
        str, typer.Option("--model", help="A model of the catalog, a folder, a config.json, or a model of the Hub.")
    ],
    accelerator: Annotated[
        str | None, typer.Option("--accelerator", help="An accelerator of the catalog, or any name with --memory-gib.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", help="How many: the tensor parallel size where --vllm-args names none.")
    ] = None,
    vllm_args: Annotated[str, typer.Option("--vllm-args", help="The arguments of `vllm serve`, as one text.")] = "",
    vllm_version: Annotated[
        str, typer.Option("--vllm-version", help="Of vLLM. Default: the one that is rendered for.")
    ] = "0.32.0",
    memory_gib: Annotated[
        float | None, typer.Option("--memory-gib", help="Memory of one accelerator, in GiB (2^30 bytes).")
    ] = None,
    bandwidth_gbs: Annotated[
        float | None, typer.Option("--bandwidth-gbs", help="Bandwidth of its memory, in 10^9 bytes per second.")
    ] = None,
    length: Annotated[
        int | None, typer.Option("--length", help="Tell how many requests of this many tokens fit at once.", min=1)
    ] = None,
    picture: PictureOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> None:
    """Say whether a model fits an accelerator under vLLM, how much it serves at once, and why. Exit status 1: it does
    not."""
    from neuroscale.cli.fit import Question, show_fit

    question = Question(model, accelerator, count, vllm_args, vllm_version, memory_gib, bandwidth_gbs, length)
    raise typer.Exit(show_fit(question, repository, as_json=as_json, picture=picture))


@app.command()
def accuracy(
    cases: Annotated[
        Path | None, typer.Option("--cases", help="A folder of cases. Default: the repository's tests/ground_truth.")
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", help="One kind of figure alone, such as verdict, weights or kv_tokens.")
    ] = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> None:
    """Compare what planning says with what others measured. Exit status 1: an aim does not hold."""
    from neuroscale.cli.accuracy import show_accuracy

    raise typer.Exit(show_accuracy(cases, repository, only, as_json=as_json))


@app.command()
def render(
    request: Annotated[Path, typer.Argument(help="A request.yaml. A plan.yaml beside it is used as its lock.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Where to write. Default: the request's own folder.")
    ] = None,
    repository: RepositoryOption = None,
) -> None:
    """Write the manifests that a request and its plan render to."""
    from neuroscale.cli.render import render_request

    raise typer.Exit(render_request(request, out, repository))


@app.command()
def replan(
    service: Annotated[str, typer.Argument(help="A service: its folder, ENVIRONMENT/SERVICE, or its name alone.")],
    repository: RepositoryOption = None,
) -> None:
    """Renew a service's plan from the catalog as it is, and render it again."""
    from neuroscale.cli.render import replan_service

    raise typer.Exit(replan_service(service, repository))


@app.command()
def new(
    answers: Annotated[Path | None, typer.Option("--answers", help="A YAML file with the form's answers.")] = None,
    interactive: Annotated[bool, typer.Option("--interactive", help="Ask for each answer.")] = False,
    repository: RepositoryOption = None,
) -> None:
    """Fill in the form: plan, render and write the service's folder."""
    from neuroscale.cli.new import new_service

    raise typer.Exit(new_service(answers, repository, interactive=interactive))


@app.command()
def request(
    answers: Annotated[Path | None, typer.Option("--answers", help="A YAML file with the form's answers.")] = None,
    interactive: Annotated[bool, typer.Option("--interactive", help="Ask for each answer.")] = False,
    remote: Annotated[str, typer.Option("--remote", help="The git remote whose forge gets the request.")] = "origin",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            help="A file of mode 0600 with the forge's token. Default: $NEUROSCALE_FORGE_TOKEN, or the file that "
            "$NEUROSCALE_FORGE_TOKEN_FILE names.",
        ),
    ] = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> None:
    """Ask for a service: plan, render, judge, and open the pull request (or bring the open one up to date)."""
    from neuroscale.cli.request import Options, request_service

    options = Options(answers, interactive, remote, token_file, as_json)
    raise typer.Exit(request_service(options, repository))


@app.command()
def gate(
    paths: Annotated[list[Path] | None, typer.Argument(help="Folders or files of manifests.")] = None,
    base: Annotated[str, typer.Option("--base", help="Check what merging --head into this revision brings.")] = "",
    head: Annotated[str, typer.Option("--head", help="The revision to check.")] = "",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the verdict as JSON here ('-': print).")
    ] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", help="Write the verdict as JUnit XML here.")] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Write the verdict as Markdown here.")
    ] = None,
    only_read_head: Annotated[
        bool,
        typer.Option("--only-read-head", help="Run no code of the change; for workflows that hold a token."),
    ] = False,
    server: Annotated[
        bool,
        typer.Option(
            "--server", help="Ask a Kubernetes API server too, which is started for this run alone (seconds)."
        ),
    ] = False,
    strict: Annotated[
        bool | None,
        typer.Option(
            "--strict/--no-strict",
            help="Refuse objects of kinds that nothing judges. Default: refuse them in a change, name them for PATHS.",
        ),
    ] = None,
    repository: RepositoryOption = None,
) -> None:
    """Judge manifests. Exit status: 0 passed, 1 findings, 2 unusable input, 3 the gate cannot be trusted."""
    from neuroscale.cli.gate import Reports, run_gate

    reports = Reports(json_file, junit_file, markdown_file)
    status = run_gate(
        paths or [], base, head, repository, reports, only_read_head=only_read_head, server=server, strict=strict
    )
    raise typer.Exit(status)


@app.command()
def comment(
    markdown: Annotated[Path, typer.Argument(help="The gate's report, as --markdown wrote it.")],
    pull_request: Annotated[int, typer.Option("--pull-request", help="The pull request's number.", min=1)],
    head: Annotated[str, typer.Option("--head", help="The commit that was judged.")],
) -> None:
    """Write the gate's report as the one comment of a pull request. Run by the gate's workflow."""
    from neuroscale.cli.comment import comment_on

    raise typer.Exit(comment_on(markdown, pull_request, head))


@app.command()
def keys(
    environment: Annotated[str, typer.Option("--environment", help="Whose services get their keys.")],
    wait: Annotated[
        int, typer.Option("--wait", help="Seconds to wait for services that are not deployed yet.", min=0, max=3600)
    ] = 0,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: PlatformOption = None,
    repository: RepositoryOption = None,
) -> None:
    """Make the API keys that an environment's services lack, and show none."""
    from neuroscale.cli.clusters import Where
    from neuroscale.cli.keys import make_keys

    raise typer.Exit(make_keys(environment, Where(context, kubeconfig, state), repository, wait=wait))


@app.command("after-merge")
def after_merge(
    folder: Annotated[Path, typer.Argument(help="Holds ENVIRONMENT/smoke.json and ENVIRONMENT/status.json.")],
    environments: Annotated[
        list[str] | None, typer.Option("--environment", help="An environment that was tested.")
    ] = None,
    repository: RepositoryOption = None,
) -> None:
    """Tell merged pull requests what their smoke tests saw, and open a revert of what fails. Run by the workflow."""
    from neuroscale.cli.after_merge import after_merge

    raise typer.Exit(after_merge(folder, environments or [], repository))


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 8088,
    repository: RepositoryOption = None,
) -> None:
    """Serve `POST /api/v1/plan` for the portal."""
    from neuroscale.cli.serve import serve_plans

    raise typer.Exit(serve_plans(host, port, repository))


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the forge running, to look around.")] = False,
    state: Annotated[
        Path | None, typer.Option("--state", help="Where the forge keeps its files. Default: .state/demo.")
    ] = None,
) -> None:
    """Show the main job from answers to a merge, in a scratch copy of this repository and on a forge of its own."""
    from neuroscale.cli.demo import run_demo

    raise typer.Exit(run_demo(state, keep=keep))


@app.command()
def status(
    service: Annotated[str, typer.Argument(help="A service, for its details; all of them where it is left out.")] = "",
    environment: Annotated[str, typer.Option("--environment", help="Only services of this environment.")] = "",
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: PlatformOption = None,
    wait: Annotated[
        int | None,
        typer.Option("--wait", help="Ask again until all is ready or failed, for so many seconds.", min=0, max=86400),
    ] = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> None:
    """Judge what a cluster serves, and say where. Exit status: 0 all is ready, 1 not, 2 the cluster cannot be asked."""
    from neuroscale.cli.clusters import Where
    from neuroscale.cli.status import show_status

    where = Where(context, kubeconfig, state)
    raise typer.Exit(show_status(service, environment, where, repository, wait=wait, as_json=as_json))


@app.command()
def smoke(
    environment: Annotated[str, typer.Option("--environment", help="Whose services are looked at.")],
    service: Annotated[str, typer.Option("--service", help="Only this service.")] = "",
    base_url: Annotated[
        str, typer.Option("--base-url", help="Where its clients reach the one service. Default: by a port-forward.")
    ] = "",
    revision: Annotated[
        str, typer.Option("--revision", help="The merged commit. Default: the default branch's newest here.")
    ] = "",
    patience: Annotated[
        float, typer.Option("--patience", help="Seconds that a first answer may take.", min=1, max=600)
    ] = 60.0,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: PlatformOption = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result as JSON here.")] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", help="Write the result as JUnit XML here.")] = None,
    markdown_file: Annotated[Path | None, typer.Option("--markdown", help="Write the result as Markdown here.")] = None,
    repository: RepositoryOption = None,
) -> None:
    """Look whether what is deployed serves as Git says. Exit status: 0 all passed, 1 findings, 3 cannot be trusted."""
    from neuroscale.cli.clusters import Where
    from neuroscale.cli.smoke import Question, Reports, smoke

    question = Question(environment, service, base_url, revision, patience)
    reports = Reports(json_file, junit_file, markdown_file)
    raise typer.Exit(smoke(question, Where(context, kubeconfig, state), repository, reports))


@app.command()
def metrics(
    service: Annotated[str, typer.Argument(help="A service: its name, or ENVIRONMENT/SERVICE.")],
    environment: Annotated[str, typer.Option("--environment", help="The environment that it is in.")] = "",
    since: Annotated[str, typer.Option("--since", help="How far to look back: 90s, 15m, 6h, 2d.")] = "15m",
    namespace: Annotated[str, typer.Option("--namespace", help="Where several have a service of this name.")] = "",
    prometheus_url: Annotated[
        str,
        typer.Option(
            "--prometheus-url",
            help="Where Prometheus answers. Default: the Service that the settings name, by a port-forward.",
        ),
    ] = "",
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: PlatformOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> None:
    """Show a service's latency, tokens, queue and cache, now and over time. Exit status: 0 it answers, 1 it does not or
    nothing is known, 2 Prometheus cannot be asked."""
    from neuroscale.cli.clusters import Where
    from neuroscale.cli.metrics import Asked, show_metrics

    asked, where = Asked(service, environment, namespace, since), Where(context, kubeconfig, state)
    raise typer.Exit(show_metrics(asked, where, prometheus_url, repository, as_json=as_json))


@app.command()
def query(
    service: Annotated[str, typer.Argument(help="A service: its name, or ENVIRONMENT/SERVICE.")],
    prompt: Annotated[str, typer.Argument(help="What to ask; - reads it from standard input.")],
    environment: Annotated[str, typer.Option("--environment", help="The service's environment.")] = "",
    system: Annotated[str, typer.Option("--system", help="What the model is told before the prompt.")] = "",
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", help="The longest answer. Default: all that fits.", min=1)
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="0: the likeliest token always. Default: the server's.", min=0)
    ] = None,
    stream: Annotated[
        bool, typer.Option("--stream/--no-stream", help="Whether the answer is shown and timed as it comes.")
    ] = True,
    base_url: Annotated[
        str,
        typer.Option(
            "--base-url",
            help="Where its clients reach it. Default: by a port-forward. With $NEUROSCALE_API_KEY or "
            "$NEUROSCALE_API_KEY_FILE (mode 0600), no cluster is asked.",
        ),
    ] = "",
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: PlatformOption = None,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> None:
    """Ask a service, and say what the answer took. Exit status: 1 the endpoint failed, 2 it cannot be asked."""
    from neuroscale.cli.clusters import Where
    from neuroscale.cli.query import Asked, query_service

    asked = Asked(prompt, system, max_tokens, temperature, stream, base_url)
    where = Where(context, kubeconfig, state)
    raise typer.Exit(query_service(service, environment, asked, where, repository, as_json=as_json))


@app.command("key")
def api_key(
    service: Annotated[str, typer.Argument(help="A service: its name, or ENVIRONMENT/SERVICE.")],
    environment: Annotated[str, typer.Option("--environment", help="The service's environment.")] = "",
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Replace the key, and the pods that take the earlier one, one by one.")
    ] = False,
    show: Annotated[bool, typer.Option("--print", help="Write the key to standard output.")] = False,
    wait: Annotated[
        int | None,
        typer.Option("--wait", help="Seconds for each pod's replacement. Default: as its probes allow.", min=1),
    ] = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    state: PlatformOption = None,
    repository: RepositoryOption = None,
) -> None:
    """Make a service's API key where it is missing, or replace it. Exit status 1: a new key could not be proven."""
    from neuroscale.cli.clusters import Where
    from neuroscale.cli.key import manage_key

    where = Where(context, kubeconfig, state)
    raise typer.Exit(manage_key(service, environment, where, repository, replace=rotate, show=show, seconds=wait))


local = typer.Typer(
    name="local", help="The platform on this machine: a real forge and its runner.", no_args_is_help=True
)
app.add_typer(local)

StateOption = Annotated[
    Path | None, typer.Option("--state", help="The platform's folder. Default: .state/local of the repository.")
]


@local.command("up")
def local_up(
    state: StateOption = None,
    runner_capacity: Annotated[
        int | None, typer.Option("--jobs", help="Jobs that the runner takes at a time. Default: 2.", min=1, max=64)
    ] = None,
    cluster: Annotated[
        bool | None,
        typer.Option(
            "--cluster/--no-cluster", help="Whether there is a cluster, or the forge alone. Default: as before."
        ),
    ] = None,
    environments: Annotated[
        list[str] | None,
        typer.Option("--environment", help="An environment to deploy onto the cluster. Default: dev and local."),
    ] = None,
    repository: RepositoryOption = None,
) -> None:
    """Start what does not run, and return when all is healthy. The forge begins with this repository's HEAD."""
    from neuroscale.cli.local import local_up
    from neuroscale.local.start_and_stop import Options

    options = Options(runner_capacity, cluster, tuple(environments) if environments else None)
    raise typer.Exit(local_up(state, repository, options))


@local.command("kubeconfig")
def local_kubeconfig(state: StateOption = None, repository: RepositoryOption = None) -> None:
    """Print the path of the administrator's kubeconfig: kubectl --kubeconfig "$(neuroscale local kubeconfig)"."""
    from neuroscale.cli.local import local_kubeconfig

    raise typer.Exit(local_kubeconfig(state, repository))


@local.command("down")
def local_down(
    state: StateOption = None,
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove its folder as well, with all that it holds.")
    ] = False,
    repository: RepositoryOption = None,
) -> None:
    """End everything that was started, also after a crash."""
    from neuroscale.cli.local import local_down

    raise typer.Exit(local_down(state, repository, delete=delete))


@local.command("status")
def local_status(state: StateOption = None, as_json: JsonOption = False, repository: RepositoryOption = None) -> None:
    """Show each process. Exit status 1: something is ill or does not run."""
    from neuroscale.cli.local import local_status

    raise typer.Exit(local_status(state, repository, as_json=as_json))


@local.command("logs")
def local_logs(
    name: Annotated[str, typer.Argument(help="A process; all of them where it is left out.")] = "",
    lines: Annotated[int, typer.Option("--lines", help="How many lines of each.", min=0)] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is added.")] = False,
    state: StateOption = None,
    repository: RepositoryOption = None,
) -> None:
    """Print what the processes say."""
    from neuroscale.cli.local import local_logs

    raise typer.Exit(local_logs(name, state, repository, lines=lines, follow=follow))


platform = typer.Typer(
    name="platform", help="What a cluster gets: render it into the repository, install it.", no_args_is_help=True
)
app.add_typer(platform)


@platform.command("render")
def platform_render(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing. Exit status 1: some files are not as rendered.")
    ] = False,
    repository: RepositoryOption = None,
) -> None:
    """Write what settings and catalog render to: Argo CD's files, runtimes, tenancy, upstream's charts."""
    from neuroscale.cli.platform import render_platform

    raise typer.Exit(render_platform(repository, check=check))


@platform.command("install")
def platform_install(
    context: Annotated[str, typer.Option("--context", help="The kubeconfig's context of the cluster.")],
    environment: Annotated[str, typer.Option("--environment", help="The environment that the cluster is.")],
    kubeconfig: KubeconfigOption = None,
    repo_url: Annotated[str, typer.Option("--repo-url", help="What Argo CD reads. Default: the settings' URL.")] = "",
    revision: Annotated[str, typer.Option("--revision", help="Default: the settings' default branch.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Ask the cluster, and change nothing.")] = False,
    as_json: JsonOption = False,
    repository: RepositoryOption = None,
) -> None:
    """Tell a cluster's Argo CD what to deploy. Repeat it after a change of settings, teams or charts."""
    from neuroscale.cli.platform import Target, install_platform

    target = Target(context, environment, kubeconfig, repo_url, revision)
    raise typer.Exit(install_platform(target, repository, dry_run=dry_run, as_json=as_json))


def main() -> None:
    """Run the command line; every foreseen error is one clear message, and every other one is exit status 3."""
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
        _say(f"{place}{error.strerror or error}. What it printed is not complete.")
        sys.exit(ExitStatus.UNTRUSTED)
    except Exception as error:
        if os.environ.get("NEUROSCALE_DEBUG"):
            raise
        _say(
            f"a defect of this program: {type(error).__name__}: {error}\n"
            "Nothing that it printed can be trusted. Set NEUROSCALE_DEBUG=1 for the details and report it."
        )
        sys.exit(ExitStatus.UNTRUSTED)


def _say(error: str) -> None:
    """Print an error. It may quote a file, a cluster or a forge, whose text must not reach the terminal as commands."""
    from neuroscale.core.printable import terminal_lines

    print(f"neuroscale: {terminal_lines(error)}", file=sys.stderr)  # noqa: T201
