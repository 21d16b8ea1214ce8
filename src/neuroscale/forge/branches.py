"""Makes branches of the forge in a clone, without touching its work tree, index, branches or HEAD.

Commits are built from trees (git's plumbing) and go straight to the forge's branch; the clone only gains objects.

Says what the protection of a repository's main branch lacks.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from neuroscale.core.errors import InputError
from neuroscale.core.files import scratch_folder
from neuroscale.core.printable import one_line
from neuroscale.core.quantities import duration
from neuroscale.core.secret_text import redact
from neuroscale.core.validation import is_loopback
from neuroscale.core.waiting import repeatedly
from neuroscale.forge.interface import Account, ForgeError, ForgeUnavailableError, Kind, RepositoryRef, Token
from neuroscale.forge.rest import Forge
from neuroscale.repo.git import Git, GitError, GitTimeoutError
from neuroscale.repo.snapshot import GitSnapshot

REQUIRED_CHECK: Mapping[Kind, str] = {"gitea": "gate / gate (pull_request_target)", "github": "gate"}
"""The name under which each kind of forge shows the gate's status."""


def problems(forge: Forge, branch: str) -> list[str]:
    """What lets a change reach the branch without the gate and a review, a sentence each; empty if nothing does.

    Raises ForgeError if the forge does not show the protection to this token.
    """
    found = forge.protection(branch)
    if found is None:
        return [f"Nothing protects {branch}: everybody who may write to the repository may push to it."]
    wanted = REQUIRED_CHECK[forge.kind]
    told = []
    if found.direct_pushes:
        told.append(f"{branch} takes pushes without a pull request.")
    if wanted not in found.required_checks:
        listed = ", ".join(found.required_checks) or "none"
        told.append(f"{branch} does not require the check {wanted!r}. It requires: {listed}.")
    if found.approvals < 1:
        told.append(f"{branch} requires no approval.")
    if found.rebases is None:
        told.append("Whether the forge merges by rebasing is not shown to this token. Use that of an administrator.")
    elif found.rebases:
        why = "so that commits reach it which the gate never judged by themselves. Allow merge commits and squash alone"
        told.append(f"{branch} takes merges by rebasing ({', '.join(found.rebases)}), {why}.")
    return told


_ATTEMPTS = 3
# Seconds for one git command that talks to the forge: for reading names, and for moving objects.
_READING = 30.0
_MOVING = 120.0
_PAUSE = 0.5
# Answers after which a repeat is useless; any other may be a passing fault of the network or the forge.
_REFUSED = re.compile(
    r"returned error: (?:3\d\d|4(?!08|29)\d\d)"
    r"|unable to update url base from redirection"
    r"|authentication failed|could not read (?:username|password)|permission denied|host key verification failed"
    r"|repository .*not found|does not appear to be a git repository|certificate",
    re.IGNORECASE,
)
# Messages of a forge that refuses a push because somebody else's came first.
_OVERTAKEN = re.compile(r"lock|already exists|incorrect old value|failed to update|but expected", re.IGNORECASE)
_HTTP = ("http://", "https://")


class BranchMovedError(ForgeError):
    """The branch has moved since it was read: read it again."""


@dataclass(frozen=True)
class Access:
    """Lets git reach repositories of the forge in the same way as `remote`, the URL of a git remote.

    Over HTTP, git gets the token in its environment; over SSH it uses the user's own keys.
    """

    remote: str = field(repr=False)  # it may hold a password
    token: Token

    @property
    def over_http(self) -> bool:
        return self.remote.strip().lower().startswith(_HTTP)

    def url(self, repository: RepositoryRef) -> str:
        """The address of a repository on the same forge. It never holds a user's password or a token."""
        if self.over_http:
            return repository.clone_url
        tail = re.fullmatch(r"(?P<host>.*[/:])[^/:]+/[^/]+/?", self.remote.strip())
        if tail is None:
            raise InputError.at("the git remote", "", "does not name an owner and a repository", "Correct its address.")
        host = re.sub(r"(?<=://)([^:@/]*):[^@/]*@", r"\1@", tail["host"])
        return f"{host}{repository.slug}.git"

    def environment(self, repository: RepositoryRef) -> dict[str, str]:
        """Variables for a git command that talks to that repository: without prompts, redirects and hooks."""
        settings = [
            ("credential.helper", ""),
            ("fetch.writeCommitGraph", "false"),
            ("gc.auto", "0"),
            ("maintenance.auto", "false"),
            ("push.pushOption", ""),
        ]
        if self.over_http:
            url = self.url(repository)
            secret = base64.b64encode(f"x-access-token:{self.token.secret}".encode()).decode()
            settings += [
                # An empty header drops the headers of the user's configuration for this address.
                (f"http.{url}.extraHeader", ""),
                (f"http.{url}.extraHeader", f"Authorization: Basic {secret}"),
                (f"http.{url}.followRedirects", "false"),
                (f"http.{url}.sslVerify", "true"),
                (f"http.{url}.lowSpeedLimit", "1"),
                (f"http.{url}.lowSpeedTime", "60"),
            ]
            if is_loopback(urlsplit(url).hostname or ""):
                settings.append((f"http.{url}.proxy", ""))
        variables = {"GIT_ASKPASS": "", "GIT_CONFIG_COUNT": str(len(settings))}
        for index, (key, value) in enumerate(settings):
            variables |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
        return variables

    def scrubbed(self, text: str) -> str:
        return redact(text, self.token)


class Branches:
    """The branches of a forge's repositories, as git sees them."""

    def __init__(self, git: Git, access: Access) -> None:
        self.git = git
        self._access = access

    def tip(self, repository: RepositoryRef, branch: str) -> str | None:
        """The commit that the branch points to on the forge; None if the branch does not exist.

        Raises ForgeUnavailableError and ForgeError.
        """
        name = f"refs/heads/{branch}"
        answer = self._ask("read", repository, lambda url: ("ls-remote", "--quiet", "--", url, name))
        for line in answer.splitlines():
            commit, _, found = line.partition("\t")
            if found == name:
                return commit
        return None

    def fetch(self, repository: RepositoryRef, branch: str) -> str | None:
        """As `tip`; afterwards the clone has the commit and its history."""
        options = ("--quiet", "--no-write-fetch-head", "--no-tags", "--no-recurse-submodules", "--no-prune")
        for _ in range(_ATTEMPTS):
            commit = self.tip(repository, branch)
            if commit is None:
                return None
            self._ask("fetch", repository, lambda url: ("fetch", *options, "--", url, f"refs/heads/{branch}"))
            # The branch may have been replaced between the two commands.
            if self.git.knows(commit):
                return commit
        raise BranchMovedError(f"The branch {branch} of {repository.slug} keeps changing. Run the command again.")

    def push(self, repository: RepositoryRef, branch: str, commit: str, seen: str | None) -> None:
        """Point the branch to `commit`, if it still points to `seen` (None: if it does not exist). Does nothing if that
        is done already.

        Raises BranchMovedError if it points elsewhere, ForgeUnavailableError and ForgeError.
        """
        name = f"refs/heads/{branch}"
        lease = f"--force-with-lease={name}:{seen or ''}"
        options = ("--porcelain", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no", lease)

        def overtaken(output: str, errors: str) -> None:
            refusal = next((line for line in output.splitlines() if line.startswith("!")), "")
            if not refusal or "[remote failure]" in refusal:
                return
            reason = refusal.rpartition("\t")[2]
            if "[rejected]" in reason or _OVERTAKEN.search(reason):
                raise BranchMovedError(f"Somebody else moved the branch {branch} of {repository.slug} meanwhile.")
            remarks = [line.partition("remote:")[2].strip() for line in errors.splitlines() if "remote:" in line]
            told = self._access.scrubbed(one_line(" ".join([reason, *remarks]), 400))
            raise ForgeError(f"{repository.slug} does not take the branch {branch}: {told}. Repair that.")

        def done() -> bool:
            """Whether a push without an answer arrived all the same. Raises BranchMovedError."""
            now = self.tip(repository, branch)
            if now not in (commit, seen):
                raise BranchMovedError(f"Somebody else moved the branch {branch} of {repository.slug} meanwhile.")
            return now == commit

        self._ask("push", repository, lambda url: ("push", *options, "--", url, f"{commit}:{name}"), overtaken, done)

    def _ask(
        self,
        what: str,
        repository: RepositoryRef,
        arguments: Callable[[str], Sequence[str]],
        inspect: Callable[[str, str], None] | None = None,
        done: Callable[[], bool] | None = None,
    ) -> str:
        """The output of a git command that talks to the forge, repeated a few times if the network fails.

        `inspect` gets the output and errors of every failure and may raise; `done` says whether a failed command did
        its work all the same.
        """
        url, environment = self._access.url(repository), self._access.environment(repository)
        seconds = _READING if what == "read" else _MOVING

        def failed(told: str) -> str:
            if done is not None and done():
                return ""
            raise ForgeUnavailableError(
                f"git cannot {what} {repository.slug} after {_ATTEMPTS} attempts: {told}. Check that the forge is up, "
                f"and run the command again."
            )

        def ask() -> str:
            try:
                finished = self.git.run(*arguments(url), check=False, environment=environment, timeout=seconds)
            except GitTimeoutError:
                return failed(f"no answer within {duration(seconds)}")
            output, errors = (part.decode(errors="replace") for part in (finished.stdout, finished.stderr))
            if finished.returncode == 0:
                return output
            if inspect is not None:
                inspect(output, errors)
            told = self._access.scrubbed(one_line(errors.strip() or output.strip() or "it gives no reason", 400))
            if _REFUSED.search(errors):
                raise ForgeError(f"git cannot {what} {repository.slug}: {told}. {_advice(errors, self._access)}")
            return failed(told)

        return repeatedly(
            ask, attempts=_ATTEMPTS, again=lambda error: isinstance(error, ForgeUnavailableError), first_pause=_PAUSE
        )


def _advice(errors: str, access: Access) -> str:
    if re.search(r"error: 3\d\d|redirection", errors):
        return "If the repository moved, change the address of the git remote."
    if access.over_http:
        return "Check the repository's name, and that the token is valid and may read and push there."
    return "Check that your ssh key is known to the forge and may read and push there."


def check_branch_name(git: Git, branch: str) -> None:
    """Raises InputError for a name that git does not accept for a branch."""
    if git.run("check-ref-format", f"refs/heads/{branch}", check=False).returncode != 0 or branch.startswith("-"):
        raise InputError.at(
            "the template", "branchName", f"{branch!a} is not a valid branch name", "Correct the template."
        )


def is_ancestor(git: Git, old: str, new: str) -> bool:
    """Whether `new` holds everything that `old` holds."""
    return git.run("merge-base", "--is-ancestor", old, new, check=False).returncode == 0


def holds(git: Git, tree: str, folder: str | None, files: Mapping[str, str]) -> bool:
    """Whether the folder of a tree (or a commit) holds exactly these plain files, by their path in the repository.

    Without a folder: whether the tree holds these files, beside whatever others.
    """
    snapshot = GitSnapshot(git, tree)
    entries = snapshot.entries(*files) if folder is None else snapshot.entries(folder)
    if any(entry.kind != "file" for entry in entries) or {entry.path for entry in entries} != set(files):
        return False
    return all(snapshot.read(path) == text.encode() for path, text in files.items())


def with_files(git: Git, tree: str, folder: str | None, files: Mapping[str, str]) -> str:
    """The tree in which `folder` holds exactly `files` (path in the repository to text). Returns its id.

    Without a folder: the tree with these files, and all others as they are.
    """
    there = [] if folder is None else GitSnapshot(git, tree).entries(folder)
    # The mode 0 removes a path.
    records = [f"0 {entry.object_id}\t{entry.path}" for entry in there]
    for path, text in files.items():
        blob = git.run("hash-object", "-w", "--stdin", "--no-filters", data=text.encode()).stdout.decode().strip()
        records.append(f"100644 {blob}\t{path}")
    with scratch_index(git, tree) as index:
        data = "".join(f"{record}\0" for record in records).encode(errors="surrogateescape")
        git.run("update-index", "-z", "--add", "--replace", "--index-info", data=data, environment=index)
        return git.run("write-tree", environment=index).stdout.decode().strip()


@contextmanager
def scratch_index(git: Git, tree: str) -> Iterator[dict[str, str]]:
    """Variables for git commands that change an index which holds this tree, and not the clone's own."""
    with scratch_folder("neuroscale-index-") as folder:
        variables = {"GIT_INDEX_FILE": str(folder / "index")}
        git.run("read-tree", tree, environment=variables)
        yield variables


def merged_tree(git: Git, ours: str, theirs: str, places: Collection[str]) -> tuple[str, bool]:
    """The tree of a merge of two commits, and whether it is clean. It may hold conflicts in these files and folders.

    Raises InputError for conflicts elsewhere.
    """
    done = git.run("merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", ours, theirs, check=False)
    if done.returncode not in (0, 1):
        text = one_line(done.stderr.decode(errors="replace"), 400)
        raise GitError(f"git cannot merge {theirs[:12]} into {ours[:12]}: {text}")
    tree, *conflicts = [part for part in done.stdout.decode(errors="surrogateescape").split("\0") if part]
    within = tuple(f"{place}/" for place in places)
    outside = sorted({path for path in conflicts if path not in places and not path.startswith(within)})
    if outside:
        named = ", ".join(outside[:5]) + (" and others" if len(outside) > 5 else "")
        raise InputError.at(
            "the pull request's branch",
            "",
            f"conflicts with its base outside {', '.join(places)}: {one_line(named, 400)}",
            "Merge the base into the branch by hand, resolve these conflicts, push, and run the command again.",
        )
    return tree, done.returncode == 0


def make_commit(git: Git, tree: str, parents: Sequence[str], message: str, account: Account) -> str:
    """A commit by the account. Returns its id; no branch points to it yet."""
    name = _ident(account.name) or _ident(account.login) or "neuroscale"
    email = _ident(account.email) or _ident(account.login) or "neuroscale"
    variables = {
        f"GIT_{role}_{part}": value
        for role in ("AUTHOR", "COMMITTER")
        for part, value in (("NAME", name), ("EMAIL", email))
    }
    given = [part for parent in parents for part in ("-p", parent)]
    done = git.run(
        "-c",
        "i18n.commitEncoding=UTF-8",
        "commit-tree",
        *given,
        "-F",
        "-",
        tree,
        data=f"{message.strip()}\n".encode(errors="replace"),
        environment=variables,
    )
    return done.stdout.decode().strip()


def same_commit(git: Git, one: str, other: str) -> bool:
    """Whether two commits have the same files and the same parents."""
    return git.text("show", "--no-patch", "--format=%T %P", one) == git.text(
        "show", "--no-patch", "--format=%T %P", other
    )


def _ident(text: str) -> str:
    """The part of a name or an address that git keeps in a commit."""
    return re.sub(r"[<>\x00-\x1f\x7f]", "", text.encode(errors="replace").decode()).strip(" .,:;\"'\\")[:200]
