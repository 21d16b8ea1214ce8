"""Reads, fetches and pushes branches of the forge from a clone, whose own branches and work tree stay as they are."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from neuroscale.core.addresses import is_loopback
from neuroscale.core.errors import InputError
from neuroscale.core.money_and_time import duration
from neuroscale.core.printable import one_line
from neuroscale.core.secret_text import redact
from neuroscale.core.waiting import repeatedly
from neuroscale.forge.interface import ForgeError, ForgeUnavailableError, RepositoryRef, Token
from neuroscale.repo.git import Git, GitTimeoutError

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
            commit, _, ref = line.partition("\t")
            if ref == name:
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
            reason = self._access.scrubbed(one_line(" ".join([reason, *remarks]), 400))
            raise ForgeError(f"{repository.slug} does not take the branch {branch}: {reason}. Repair that.")

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

        def failed(reason: str) -> str:
            if done is not None and done():
                return ""
            raise ForgeUnavailableError(
                f"git cannot {what} {repository.slug} after {_ATTEMPTS} attempts: {reason}. "
                "Check that the forge is up, and run the command again."
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
            reason = self._access.scrubbed(one_line(errors.strip() or output.strip() or "it gives no reason", 400))
            if _REFUSED.search(errors):
                raise ForgeError(f"git cannot {what} {repository.slug}: {reason}. {_advice(errors, self._access)}")
            return failed(reason)

        return repeatedly(
            ask, attempts=_ATTEMPTS, again=lambda error: isinstance(error, ForgeUnavailableError), first_pause=_PAUSE
        )


def _advice(errors: str, access: Access) -> str:
    if re.search(r"error: 3\d\d|redirection", errors):
        return "If the repository moved, change the address of the git remote."
    if access.over_http:
        return "Check the repository's name, and that the token is valid and may read and push there."
    return "Check that your ssh key is known to the forge and may read and push there."
