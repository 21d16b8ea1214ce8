"""Definitions that lie in etcd before an API server serves them are those that it would have made itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api_server import ApiServer
from neuroscale.core import schemas
from neuroscale.core.waiting import attempts
from neuroscale.kube.apply import apply_all, await_served, marked
from neuroscale.kube.client import Identity, Object
from neuroscale.kube.stored_definitions import store_definitions

pytestmark = pytest.mark.tools

STORED, SENT = "stored.example.org", "sent.example.org"


def definition(group: str) -> Object:
    """Upstream's definition of a small kind, in another group."""
    (found,) = (one for one in schemas.find().crds() if one["spec"]["names"]["kind"] == "GeneratingPolicy")
    name = f"{found['spec']['names']['plural']}.{group}"
    return {**found, "metadata": {"name": name}, "spec": {**found["spec"], "group": group}}


@pytest.fixture
def stored(api_server: ApiServer) -> Iterator[Object]:
    """A definition that was stored, and never sent."""
    wanted = definition(STORED)
    store_definitions(api_server.plane, [marked(wanted)])
    await_served(api_server.cluster, [wanted], 60)
    yield wanted
    api_server.cluster.delete(Identity.of(wanted))
    # Its finalizer ends it a moment later, and would take what the next test stores.
    for _ in attempts(60, 0.1):
        if api_server.cluster.get(wanted["apiVersion"], wanted["kind"], wanted["metadata"]["name"]) is None:
            return
    raise AssertionError(f"{wanted['metadata']['name']} is still there")


def there(server: ApiServer, wanted: Object) -> Object:
    found = server.cluster.get(wanted["apiVersion"], wanted["kind"], wanted["metadata"]["name"])
    assert found is not None
    return found


def without_its_own(found: Object) -> dict[str, Any]:
    """A definition without its group, its identity and the times of its conditions."""
    conditions = [{**one, "lastTransitionTime": ""} for one in found["status"]["conditions"]]
    return {
        "generation": found["metadata"]["generation"],
        "spec": {key: value for key, value in found["spec"].items() if key != "group"},
        "status": {**found["status"], "conditions": conditions},
    }


def test_a_stored_definition_is_what_the_server_makes_of_one_that_is_sent(
    api_server: ApiServer, stored: Object
) -> None:
    sent = definition(SENT)
    apply_all(api_server.cluster, [sent])
    try:
        await_served(api_server.cluster, [sent], 60)  # its conditions come a moment after it
        assert without_its_own(there(api_server, stored)) == without_its_own(there(api_server, sent))
    finally:
        api_server.cluster.delete(Identity.of(sent))


def test_who_applies_a_stored_definition_changes_nothing(api_server: ApiServer, stored: Object) -> None:
    before = there(api_server, stored)
    apply_all(api_server.cluster, [stored])
    assert there(api_server, stored) == before


def test_what_is_stored_already_stays_as_it_is(api_server: ApiServer, stored: Object) -> None:
    before = there(api_server, stored)
    other = {**stored, "spec": {**stored["spec"], "scope": "Namespaced"}}
    assert other["spec"] != stored["spec"]
    store_definitions(api_server.plane, [other])
    assert there(api_server, stored) == before
