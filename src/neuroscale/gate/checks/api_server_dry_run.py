"""Sends every object to a real API server, as a strict server-side dry-run: the third level of the schema checks.

The run starts the server itself. The server holds nothing but the custom resource definitions that the set-up pins, and
never stores a judged object. A webhook, an APIService or a custom resource definition of a change is a dry-run like any
other object, and has no effect. So an object of a kind that only the change itself defines is a finding.

Every run also sends known-bad objects, which the server must refuse, and known-good ones, which it must take.
"""

from __future__ import annotations

from collections.abc import Sequence

from neuroscale.core.errors import UntrustedError
from neuroscale.core.schemas import SchemaSet
from neuroscale.gate.checks.api_server_questions import KnownKinds, Questions, kinds_of, needed_definitions
from neuroscale.gate.checks.api_server_refusals import refused, unknown_kind
from neuroscale.gate.checks.api_server_tripwires import GOOD, check_good, check_tripwires, root_tripwire, tripwires
from neuroscale.gate.evaluation import Evaluation
from neuroscale.kube.client import KubernetesError
from neuroscale.kube.ephemeral import EphemeralServer
from neuroscale.manifests.objects import Manifest


def evaluate_by_server(
    manifests: Sequence[Manifest], schemas: SchemaSet, server: EphemeralServer, version: str
) -> Evaluation:
    """Ask about every object. `version`: the API server's version, which findings name.

    Raises UntrustedError when the server does not start, does not answer for each object, or takes a known-bad one.
    """
    fixed = tripwires({(manifest.api_version, manifest.kind) for manifest in manifests})
    wanted = kinds_of([*(manifest.value for manifest in manifests), *(manifest.value for manifest in fixed), *GOOD])
    definitions = needed_definitions(schemas.crds(), wanted)
    try:
        cluster = server.start(definitions)
        kinds = KnownKinds(cluster, definitions, wanted)
        answered = [kinds.of(manifest.value) for manifest in manifests]
        unknown = {index: why for index, why in enumerate(answered) if isinstance(why, str)}
        known = [manifest for index, manifest in enumerate(manifests) if index not in unknown]
        names = kinds_of(manifest.value for manifest in known)
        bad = [*fixed, *(root_tripwire(*name) for name in names)]
        asking = Questions(cluster, kinds)
        asked = asking.all([*(manifest.value for manifest in known), *(manifest.value for manifest in bad), *GOOD])
    except (KubernetesError, UntrustedError) as error:
        raise UntrustedError(f"{error}{server.logs()}") from error
    answers, of_tripwires, of_good = asked[: len(known)], asked[len(known) : -len(GOOD)], asked[-len(GOOD) :]
    check_tripwires(bad, of_tripwires)
    check_good(of_good)
    findings = [
        *(unknown_kind(manifests[index], why) for index, why in unknown.items()),
        *(
            finding
            for manifest, answer in zip(known, answers, strict=True)
            if answer is not None
            for finding in refused(manifest, answer, version)
        ),
    ]
    return Evaluation(
        tuple(findings),
        evaluated=len(answers) + len(unknown),
        expected=len(manifests),
        unit="objects",
        tripwires=len(bad),
        caught=len(bad),
        detail=f"Kubernetes {version}",
    )
