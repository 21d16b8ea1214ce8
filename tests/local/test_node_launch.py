"""What the local node starts for a pod: its command line, its environment, and why it waits where it cannot start."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops_lab import objects_of
from live_lab import service_files
from neuroscale.kube.client import Object
from neuroscale.local.node.launch import Launch, LocalVllm, plan_process, translate
from neuroscale.local.node.variables import Place, Sources, expand, referred
from neuroscale.local.node.waiting import WaitingError

SERVER = LocalVllm(Path("/opt/vllm/bin/python"), "0.32.0", Path("/var/models"))
PLACE = Place("this-machine", "127.127.3.4", "127.0.0.1", 2, 8 * 2**30)
ROOT = Path("/run/pods/uid-1")
IMAGE = "vllm/vllm-openai-cpu:v0.32.0"


def container(**changes: Any) -> Object:
    return {"name": "main", "image": IMAGE, "command": ["vllm", "serve"], "args": ["--port=8080"], **changes}


def pod(**spec: Any) -> Object:
    metadata = {"name": "chat-1", "namespace": "team-alpha", "uid": "uid-1", "labels": {"app": "chat"}}
    return {"metadata": metadata, "spec": {"containers": [], **spec}}


def launch(asked: Object, whole: Object | None = None, sources: Sources | None = None) -> Launch:
    return plan_process(whole or pod(), asked, sources or Sources(), SERVER, PLACE, ROOT)


def waiting(asked: Object, whole: Object | None = None, sources: Sources | None = None) -> tuple[str, str]:
    with pytest.raises(WaitingError) as caught:
        launch(asked, whole, sources)
    return caught.value.reason, caught.value.message


def test_what_the_template_renders_for_this_machine_becomes_one_process_that_listens_on_the_pods_address() -> None:
    service = next(one for one in objects_of(service_files("tiny-chat")) if one["kind"] == "InferenceService")
    predictor = service["spec"]["predictor"]
    model = {**predictor["model"], "name": "kserve-container"}
    key = Sources({"tiny-chat-api-key": {"api-key": "s3cret"}})
    found = launch(model, pod(volumes=predictor["volumes"], securityContext=predictor["securityContext"]), key)
    assert found.argv[:4] == ("/opt/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--port=8080")
    assert "--model=/var/models/tiny-qwen3-moe" in found.argv
    assert found.argv[-1] == "--host=127.127.3.4"
    # Everything else stands there as rendered.
    rendered = [*model["command"][2:], *model["args"]]
    assert [one for one in found.argv[3:-1] if "/mnt/models" not in one] == [
        one if "/mnt/models" not in one else one.replace("/mnt/models", "/var/models") for one in rendered
    ]
    assert found.environment["HOME"] == "/run/pods/uid-1/volumes/home"
    assert found.environment["HF_HOME"] == "/run/pods/uid-1/volumes/home/huggingface"
    assert found.environment["VLLM_API_KEY"] == "s3cret"
    assert found.volumes == ("home", "shared-memory", "temporary")
    assert found.memory == 4 * 2**30
    assert found.environment["OMP_NUM_THREADS"] == "1"


def test_a_key_is_in_the_environment_alone_and_in_no_text() -> None:
    asked = container(env=[{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}])
    sources = Sources({"a": {"b": "s3cret"}})
    found = launch(asked, sources=sources)
    assert "s3cret" not in " ".join(found.argv)
    assert "s3cret" not in repr(found)
    assert "s3cret" not in repr(sources)


@pytest.mark.parametrize(
    ("given_arguments", "expected"),
    [
        ({"command": ["vllm", "serve", "/mnt/models/x"], "args": ["--port=1"]}, ["--model=/var/models/x", "--port=1"]),
        ({"command": ["/usr/bin/vllm", "serve"], "args": ["--host", "0.0.0.0", "--port=1"]}, ["--port=1"]),
        ({"command": [], "args": ["--host=0.0.0.0", "--port=1"]}, ["--port=1"]),
        ({"command": ["python3", "-m", "vllm.entrypoints.openai.api_server"], "args": ["--port=1"]}, ["--port=1"]),
        ({"args": ["--model", "/mnt/models/x"]}, ["--model", "/var/models/x"]),
        ({"args": ["--name=$(POD)", "$$(POD)"]}, ["--name=chat-1", "$(POD)"]),
    ],
)
def test_the_ways_to_name_vllms_server_lead_to_the_same_module(
    given_arguments: dict[str, Any], expected: list[str]
) -> None:
    name = {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    found = launch(container(env=[name], **given_arguments))
    assert list(found.argv[3:]) == [*expected, "--host=127.127.3.4"]


def test_a_container_that_runs_something_else_waits_and_says_what_runs_here() -> None:
    reason, message = waiting(container(command=["sh", "-c"], args=["vllm serve"]))
    assert reason == "CreateContainerError"
    assert "vllm serve" in message


@pytest.mark.parametrize(
    ("image", "reason", "told"),
    [
        ("vllm/vllm-openai:v0.32.0", "ErrImagePull", "stands in for .../vllm-openai-cpu:v0.32.0"),
        ("vllm/vllm-openai-cpu:v0.33.0", "ErrImagePull", "is of version v0.33.0, and vLLM 0.32.0 is installed"),
        ("vllm/vllm-openai-cpu", "ErrImagePull", "does not say its version in a tag"),
        (f"vllm/vllm-openai-cpu@sha256:{'0' * 64}", "ErrImagePull", "does not say its version in a tag"),
        ("kserve/storage-initializer:v0.20.0", "ErrImagePull", "this machine pulls no images"),
        ("Vllm//x:?", "InvalidImageName", "invalid reference format"),
    ],
)
def test_an_image_that_the_machine_cannot_stand_in_for_is_not_pulled(image: str, reason: str, told: str) -> None:
    found = waiting(container(image=image))
    assert found[0] == reason
    assert told in found[1]


def test_an_image_of_the_organisations_own_registry_is_the_same_image() -> None:
    assert launch(container(image=f"registry.example.com:5000/a/vllm-openai-cpu:v0.32.0@sha256:{'a' * 64}"))


def test_where_vllm_is_not_installed_the_pod_waits_and_says_what_to_run() -> None:
    server = LocalVllm(Path(), "0.32.0", Path(), "vLLM 0.32.0 is not installed on this machine: run `make setup`.")
    with pytest.raises(WaitingError) as caught:
        plan_process(pod(), container(), Sources(), server, PLACE, ROOT)
    assert caught.value.reason == "ErrImagePull"
    assert "make setup" in caught.value.message


@pytest.mark.parametrize(
    ("variable", "told"),
    [
        ({"secretKeyRef": {"name": "no", "key": "k"}}, 'secret "no" not found'),
        ({"secretKeyRef": {"name": "there", "key": "no"}}, "couldn't find key no in Secret team-alpha/there"),
        ({"configMapKeyRef": {"name": "no", "key": "k"}}, 'configmap "no" not found'),
        ({"fieldRef": {"fieldPath": "status.phase"}}, "unsupported fieldPath: status.phase"),
        ({"fileKeyRef": {"path": "x"}}, "cannot read a variable from fileKeyRef"),
    ],
)
def test_a_variable_that_cannot_be_had_is_a_configuration_error_as_a_kubelet_words_it(
    variable: dict[str, Any], told: str
) -> None:
    sources = Sources({"there": {"k": "v"}, "no": None}, {"no": None})
    reason, message = waiting(container(env=[{"name": "X", "valueFrom": variable}]), sources=sources)
    assert reason == "CreateContainerConfigError"
    assert told in message


def test_what_is_optional_and_not_there_is_left_out() -> None:
    optional = {"name": "no", "key": "k", "optional": True}
    asked = container(
        env=[
            {"name": "A", "valueFrom": {"secretKeyRef": optional}},
            {"name": "B", "value": "$(A)-$(C)"},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "c"}}},
        ],
        envFrom=[{"prefix": "P_", "configMapRef": {"name": "map"}}, {"secretRef": {"name": "no", "optional": True}}],
    )
    found = launch(asked, sources=Sources({"no": None}, {"map": {"c": "see"}})).environment
    assert "A" not in found
    assert found["B"] == "$(A)-$(C)"  # neither is known where it stands
    assert found["C"] == found["P_c"] == "see"
    secrets, config_maps = referred(asked)
    assert (set(secrets), set(config_maps)) == ({"no"}, {"map"})


def test_a_container_may_ask_for_its_own_address_labels_and_limits() -> None:
    def from_field(path: str) -> Object:
        return {"name": path, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    def of(resource: str, divisor: str) -> Object:
        return {"name": resource, "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": divisor}}}

    asked = container(
        env=[
            *map(from_field, ("status.podIP", "spec.nodeName", "metadata.labels['app']", "metadata.labels['no']")),
            *(of("limits.memory", "1Mi"), of("requests.cpu", "1m"), of("limits.cpu", "1")),
        ],
        resources={"limits": {"memory": "1Gi"}, "requests": {"cpu": "1500m"}},
    )
    found = launch(asked).environment
    assert found["status.podIP"] == "127.127.3.4"
    assert found["spec.nodeName"] == "this-machine"
    assert found["metadata.labels['app']"] == "chat"
    assert found["metadata.labels['no']"] == ""
    assert found["limits.memory"] == "1024"
    assert found["requests.cpu"] == "1500"
    assert found["limits.cpu"] == "2"  # what the node has


@pytest.mark.parametrize(
    ("context", "told"),
    [
        ({"runAsNonRoot": True}, "image will run as root"),
        ({"runAsNonRoot": True, "runAsUser": 0}, "breaks non-root policy"),
    ],
)
def test_what_must_not_be_root_and_would_be_does_not_start(context: dict[str, Any], told: str) -> None:
    reason, message = waiting(container(), pod(securityContext=context))
    assert reason == "CreateContainerConfigError"
    assert told in message


def test_a_volume_that_this_node_does_not_have_keeps_the_pod_waiting() -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    reason, message = waiting(container(volumeMounts=[{"name": "data", "mountPath": "/data"}]), pod(volumes=volumes))
    assert reason == "CreateContainerConfigError"
    assert "persistentVolumeClaim" in message


def test_a_subpath_stays_in_its_volume() -> None:
    volumes = [{"name": "data", "emptyDir": {}}]
    mount = {"name": "data", "mountPath": "/data", "subPath": "../other"}
    assert "leaves its volume" in waiting(container(volumeMounts=[mount]), pod(volumes=volumes))[1]
    mount["subPath"] = "a/b"
    found = launch(container(args=["--x=/data/c"], volumeMounts=[mount]), pod(volumes=volumes))
    assert "--x=/run/pods/uid-1/volumes/data/a/b/c" in found.argv


def in_view(asked: Object, *, possible: bool = True, **spec: Any) -> Launch:
    return plan_process(pod(**spec), asked, Sources(), SERVER, PLACE, ROOT, read_only_roots=possible)


def test_a_read_only_root_leaves_the_volumes_alone_and_the_folder_at_tmp_in_its_place() -> None:
    mounts: list[Object] = [
        {"name": "home", "mountPath": "/home/vllm"},
        {"name": "temporary", "mountPath": "/tmp"},
        {"name": "seen", "mountPath": "/seen", "readOnly": True},
    ]
    volumes = [{"name": one["name"], "emptyDir": {}} for one in mounts]
    env = [{"name": "HOME", "value": "/home/vllm"}, {"name": "SOCKETS", "value": "/tmp/sockets"}]
    asked = container(env=env, volumeMounts=mounts, securityContext={"readOnlyRootFilesystem": True})
    found = in_view(asked, volumes=volumes)
    assert found.read_only_root is not None
    assert found.read_only_root.temporary == ROOT / "volumes/temporary"
    assert found.read_only_root.writable == (ROOT / "volumes/home", ROOT / "volumes/temporary")
    assert {ROOT, SERVER.models, Path("/opt/vllm")} <= set(found.read_only_root.needed)
    assert found.environment["HOME"] == str(ROOT / "volumes/home")
    assert found.environment["SOCKETS"] == "/tmp/sockets"
    # As in the image: nothing of the machine's leads vLLM elsewhere.
    assert not {"TMPDIR", "VLLM_RPC_BASE_PATH"} & set(found.environment)
    for other in (
        in_view(asked, possible=False, volumes=volumes),
        in_view({**asked, "securityContext": {}}, volumes=volumes),
    ):
        assert other.read_only_root is None
        assert other.environment["SOCKETS"] == str(ROOT / "volumes/temporary/sockets")
        assert other.environment["TMPDIR"] == str(ROOT / "scratch/main")


NAMES = st.text(alphabet="abc", min_size=1, max_size=3)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))


@given(PATHS, st.lists(st.tuples(PATHS, PATHS), max_size=4), NAMES)
def test_a_path_changes_only_where_a_mount_holds_it(path: str, pairs: list[tuple[str, str]], name: str) -> None:
    mounts = sorted(((inside, Path("/host") / outside[1:]) for inside, outside in pairs), key=lambda one: -len(one[0]))
    found = translate(path, mounts)
    holding = [inside for inside, _ in mounts if posixpath.commonpath([inside, path]) == inside]
    assert (found != path) == bool(holding)
    if holding:
        assert found.startswith("/host/")
    assert translate(name, mounts) == name


@given(st.text(alphabet="$()AB", max_size=12))
def test_expansion_leaves_unknown_names_and_never_expands_twice(text: str) -> None:
    found = expand(text, {"A": "$(B)"})
    if "$" not in text:
        assert found == text
    assert expand("$(A)", {"A": "$(B)", "B": "x"}) == "$(B)"


@given(
    st.lists(
        st.sampled_from(["--a", "--a=b", "--host", "--host=x", "value", "--model=/mnt/models/m", "/mnt/models", "-q"]),
        max_size=6,
    )
)
def test_whatever_the_arguments_are_the_server_listens_on_the_pods_address_alone(arguments: list[str]) -> None:
    found = list(launch(container(args=arguments)).argv)
    assert [one for one in found if one.startswith("--host")] == ["--host=127.127.3.4"]
    assert not any("/mnt/models" in one for one in found)
