"""Lists the Backstage actions that a template may use here, and the implemented inputs of each."""

from __future__ import annotations

from dataclasses import dataclass

PLAN_ROUTE = "/api/v1/plan"
"""The planner's path on its own server."""

PLAN_PATH = f"proxy/neuroscale{PLAN_ROUTE}"
"""The same path through Backstage's proxy, under the endpoint `/neuroscale` of its configuration."""

REQUEST = "http:backstage:request"
FETCH = "fetch:template"
PUBLISH = "publish:github:pull-request"


@dataclass(frozen=True)
class Action:
    """Names of the inputs, and of the outputs that later steps may use."""

    required: frozenset[str]
    optional: frozenset[str]
    outputs: frozenset[str]

    @property
    def inputs(self) -> frozenset[str]:
        return self.required | self.optional


ACTIONS = {
    REQUEST: Action(
        required=frozenset({"path", "method", "headers", "body"}),
        optional=frozenset(),
        outputs=frozenset({"body"}),
    ),
    FETCH: Action(
        required=frozenset({"url", "targetPath", "values"}),
        optional=frozenset({"trimBlocks", "lstripBlocks"}),
        outputs=frozenset(),
    ),
    PUBLISH: Action(
        required=frozenset({"repoUrl", "branchName", "title", "description"}),
        optional=frozenset({"targetBranchName", "commitMessage", "update", "createWhenEmpty"}),
        outputs=frozenset({"remoteUrl", "pullRequestNumber", "targetBranchName"}),
    ),
}
