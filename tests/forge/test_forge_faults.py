"""A forge's client behind a network that fails: it ends right, or with an error in words, and does nothing twice.

The sample of a real Gitea's failures fails where the client does not ask again after an error of the server, and
where it does not recognise Gitea's answer that a pull request exists; the server of GitHub's shapes does not fail
there. The sample passes where the client repeats a request that the forge may have done already: what uses the client
finds the double.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from comparisons import FORGE_FAULTS
from fault_proxy import (
    DropAfter,
    DropBefore,
    Fault,
    FaultProxy,
    Late,
    Status,
    StatusAfter,
    Trickle,
    Truncate,
    Twice,
)
from forge_lab import KINDS, QUICK, GiteaLab, Lab, Person, forge_of, running_github_lab
from forge_server import ForgeServer
from neuroscale.forge.http import Limits
from neuroscale.forge.interface import ForgeUnavailableError, RepositoryRef
from neuroscale.forge.rest import Forge
from neuroscale.forge.sticky_comment import Run, write_comment

pytestmark = pytest.mark.slow

BRANCH = "neuroscale/dev/support-chat"
# A busy Gitea must have done its work before the client gives up: a comment takes it more than three seconds then.
HASTY = replace(QUICK, silence=6.0)
# For the server of GitHub's shapes, which answers out of this process's memory.
HASTIER = replace(QUICK, silence=2.0)
DOOMED = replace(QUICK, patience=0.5)
# The client waits as long as it may where an answer trickles in, and nowhere else.
TRICKLED = replace(DOOMED, deadline=3.0, silence=1.0)

ONCE: dict[str, Fault] = {
    "answers 503 and asks to wait": Status(503, {"Retry-After": "0"}),
    "answers 502 after doing it": StatusAfter(502),
    "limits the rate": Status(429, {"Retry-After": "0"}),
    "drops the connection before": DropBefore(),
    "drops the connection after doing it": DropAfter(),
    "gets it twice": Twice(),
    "cuts the answer": Truncate(),
    "cuts the answer unnoticed": Truncate(announced=False),
    "is slower than the client waits": Late(),
}


@dataclass
class Case:
    """A repository with a fork of the developer's, a pull request from it, and the way to it by a proxy."""

    lab: Lab
    proxy: FaultProxy
    repository: RepositoryRef
    fork: RepositoryRef
    number: int
    sha: str
    limits: Limits = QUICK

    def forge(self, who: Person) -> Forge:
        return forge_of(self.lab, who, self.repository, self.proxy.url, self.limits)

    def directly(self, who: Person) -> Forge:
        return forge_of(self.lab, who, self.repository)

    def fresh(self) -> None:
        """Make the pull request a new one."""
        branch = f"neuroscale/dev/{secrets.token_hex(4)}"
        self.sha = self.lab.commit("developer", self.fork, branch)
        self.number = self.directly("developer").open_pull("Serve it", "", self.fork, branch, "main").number


@dataclass(frozen=True)
class Method:
    """A method of the client, the request that is to fail, and what must be there when it has ended right."""

    name: str
    request: tuple[str, str]
    call: Callable[[Case], object]
    done: Callable[[Case], bool]


def _opened(case: Case) -> bool:
    branch = f"neuroscale/dev/{secrets.token_hex(4)}"
    sha = case.lab.commit("developer", case.fork, branch)
    before = case.lab.pulls(case.repository)
    pull = case.forge("developer").open_pull("Second", "", case.fork, branch, "main")
    return (pull.head_sha, case.lab.pulls(case.repository)) == (sha, before + 1)


def _forked(case: Case) -> bool:
    fresh = case.lab.repository()
    fork = forge_of(case.lab, "developer", fresh, case.proxy.url, case.limits).fork()
    return case.lab.forks(fresh) == 1 and fork.may_push


def _retitled(case: Case) -> bool:
    case.fresh()
    case.forge("developer").update_pull(case.number, "Renewed", "text")
    return case.directly("owner").pull(case.number).title == "Renewed"


def _published(case: Case) -> bool:
    case.fresh()
    write_comment(case.forge("owner"), case.number, "## Green", Run(1, 1, case.sha))
    return len(case.lab.comments(case.repository, case.number)) == 1


def _changed(case: Case) -> bool:
    case.fresh()
    comment = case.directly("owner").create_comment(case.number, "old")
    case.forge("owner").update_comment(comment.id, "new")
    return case.lab.comments(case.repository, case.number) == ["new"]


def _deleted(case: Case) -> bool:
    case.fresh()
    comment = case.directly("owner").create_comment(case.number, "to be removed")
    case.forge("owner").delete_comment(comment.id)
    return case.lab.comments(case.repository, case.number) == []


def _approved(case: Case) -> bool:
    case.fresh()
    case.forge("owner").approve(case.number, case.sha)
    return case.lab.approvals(case.repository, case.number) >= 1


def _merged(case: Case) -> bool:
    case.fresh()
    case.forge("owner").merge(case.number, case.sha)
    return case.directly("owner").pull(case.number).state == "merged"


# By name: the request that fails, and the call, which says whether all is as it should be.
METHODS: dict[str, tuple[str, str, Callable[[Case], bool]]] = {
    # First, while few pull requests are open: after a merge, the forge looks at each of them again.
    "merge": ("*", "/merge$", _merged),
    "account": ("GET", "/user$", lambda case: case.forge("owner").account().login == "owner"),
    "info": ("GET", "/client-[0-9a-f]+$", lambda case: case.forge("owner").info().may_push),
    "branch": ("GET", "/(branches|git/ref)/", lambda case: bool(case.forge("owner").branch(case.fork, "main"))),
    "pull": ("GET", r"/pulls/\d+$", lambda case: case.forge("owner").pull(case.number).number == case.number),
    "find_pull": (
        "GET",
        r"/pulls\?",
        lambda case: case.forge("owner").find_pull("developer", BRANCH, "main") is not None,
    ),
    "comments": ("GET", "/comments", lambda case: case.forge("owner").comments(case.number) == []),
    "statuses": ("GET", "statuses", lambda case: case.forge("owner").statuses(case.sha) == []),
    "fork": ("POST", "/forks$", _forked),
    "open_pull": ("POST", "/pulls$", _opened),
    "update_pull": ("PATCH", "/pulls/", _retitled),
    "publish": ("POST", "/comments$", _published),
    "update_comment": ("PATCH", "/comments/", _changed),
    "delete_comment": ("DELETE", "/comments/", _deleted),
    "approve": ("POST", "/reviews$", _approved),
}


def _case(lab: Lab) -> Iterator[Case]:
    repository = lab.repository()
    developer = forge_of(lab, "developer", repository)
    fork = developer.fork().ref
    sha = lab.commit("developer", fork, BRANCH)
    number = developer.open_pull("Serve it", "", fork, BRANCH, "main").number
    with FaultProxy(lab.url) as proxy:
        yield Case(lab, proxy, repository, fork, number, sha)


@pytest.fixture(scope="module")
def on_gitea(forge_server: ForgeServer) -> Iterator[Case]:
    yield from _case(GiteaLab(forge_server))


@pytest.fixture(scope="module")
def on_github() -> Iterator[Case]:
    with running_github_lab() as lab:
        yield from _case(lab)


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest) -> Case:
    shared: Case = request.getfixturevalue(f"on_{request.param}")
    shared.proxy.clear()
    shared.proxy.hits = 0
    return replace(shared)


EACH_ONCE = [(method, fault) for method in METHODS for fault in ONCE]
_OFTEN = ("merge", "open_pull", "publish")
"""What they ask for must never be done twice, and Gitea answers a repeated request otherwise than GitHub."""


def _of_each_once() -> list[tuple[str, str]]:
    """Every method with one fault, every fault with one method or more, and those of _OFTEN with every quick one."""
    faults = list(ONCE)
    turns = {(method, faults[index % len(faults)]) for index, method in enumerate(METHODS)}
    return [
        (method, fault)
        for method, fault in EACH_ONCE
        if (method, fault) in turns or (method in _OFTEN and not isinstance(ONCE[fault], Late))
    ]


def in_the_forges(gitea: Sequence[tuple[str, str]], github: Sequence[tuple[str, str]]) -> pytest.MarkDecorator:
    """The parameters of a test: its cases of a method and a fault in both forges."""
    real, shapes = KINDS
    cases = [
        pytest.param(*kind.values, method, fault, marks=kind.marks, id=f"{kind.id}-{method}-{fault.replace(' ', '-')}")
        for kind, chosen in ((real, gitea), (shapes, github))
        for method, fault in chosen
    ]
    return pytest.mark.parametrize(("case", "method", "fault"), cases, indirect=["case"])


@in_the_forges(FORGE_FAULTS.sample(EACH_ONCE, _of_each_once()), EACH_ONCE)
def test_one_failure_is_survived_and_nothing_is_done_twice(case: Case, method: str, fault: str) -> None:
    verb, path, call = METHODS[method]
    kind = ONCE[fault]
    if isinstance(kind, Late):
        case.limits, kind = HASTY if isinstance(case.lab, GiteaLab) else HASTIER, Late()
    case.proxy.add(verb, path, kind)
    assert call(case)
    assert case.proxy.hits == 1


def test_a_refused_merge_is_tried_again_when_its_reason_was_cut_off(case: Case) -> None:
    case.proxy.add("*", "/merge$", Status(405, body=b'{"message": "Please try ag'))
    assert _merged(case)
    assert case.proxy.hits == 1


FOREVER: dict[str, tuple[Fault, str]] = {
    "500": (Status(500), "500 Internal Server Error: injected"),
    "dropped-before": (DropBefore(), "connection broke|no connection"),
    "dropped-after": (DropAfter(), "connection broke|no connection"),
    "rate-limit-of-an-hour": (
        Status(429, {"Retry-After": "3600"}),
        r"limits how many requests .* until \d{4}-\d\d-\d\d \d\d:\d\d UTC",
    ),
    "trickle": (Trickle(0.5), "no complete answer|no answer"),
}


# The client's own repeating is the same for every method; what an adapter repeats is not.
KEEPS_FAILING = [
    *(("account", fault) for fault in FOREVER),
    *(("open_pull", fault) for fault in FOREVER),
    *((method, fault) for method in ("fork", "publish", "approve", "merge") for fault in ("500", "dropped-after")),
]


_REAL_KEEPS_FAILING = [
    *(("account", "rate-limit-of-an-hour"), ("open_pull", "trickle"), ("open_pull", "500"), ("merge", "500")),
    *((method, "dropped-after") for method in ("fork", "open_pull", "publish", "approve", "merge")),
]


@in_the_forges(FORGE_FAULTS.sample(KEEPS_FAILING, _REAL_KEEPS_FAILING), KEEPS_FAILING)
def test_a_forge_that_keeps_failing_is_reported_in_words_and_in_time(case: Case, method: str, fault: str) -> None:
    verb, path, call = METHODS[method]
    kind, words = FOREVER[fault]
    case.limits = TRICKLED if fault == "trickle" else DOOMED
    case.proxy.add(verb, path, kind, times=10_000)
    began = time.monotonic()
    problem, right = "", False
    try:
        right = call(case)
    except ForgeUnavailableError as error:
        problem = str(error)
    assert time.monotonic() - began < 45
    if not problem:
        # Done, though the forge could not say so: the client looked.
        assert isinstance(kind, DropAfter | Trickle)
        assert method != "account"
        assert right
        return
    assert re.search(words, problem)
    assert len(problem) < 600
    assert case.lab.token("owner").secret not in problem
    assert case.lab.token("developer").secret not in problem
