"""vLLM's command line is read here as vLLM itself reads it.

The tests that ask vLLM's own parser fail if one of these defects is planted alone, also where they ask the sample of
`make test`: only the first underscore of an option counts as a dash; `2g` is 2 GiB, or `25.6k` loses its decimals;
`None` no longer stands for a missing value; an option given twice below one key (`--x.a.b`, `--x.a.c`) keeps the
last, or `key+` does not split at commas; a device list keeps its spaces; `--served_model_name` is ignored; the
`--no-` form of a flag switches it on; a configuration refuses `"7.0"` or `ON`; only two of three forms of a value
count; an upper bound excludes itself; bounds or items of lists are not checked.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from comparisons import ALL, VLLM_ARGUMENTS
from examples import examples
from neuroscale.tools.model_server import ModelServer
from neuroscale.vllm.arguments import REMOVED, REMOVED_FLAGS, ArgumentProblem, Parsed, parse_arguments
from neuroscale.vllm.known_arguments import Argument, load, nearest, versions
from roots import CHECKOUT, ROOT

VERSION = "0.32.0"


def parse(line: str, version: str = VERSION) -> Parsed:
    return parse_arguments(line.split(), version)


def kinds(parsed: Parsed) -> list[str]:
    return [problem.kind for problem in parsed.problems]


def only(parsed: Parsed) -> ArgumentProblem:
    assert len(parsed.problems) == 1, parsed.problems
    return parsed.problems[0]


def test_a_command_that_the_planner_renders_is_read_whole() -> None:
    parsed = parse(
        "--model=google/gemma-4-26B-A4B-it --served-model-name=gemma --tensor-parallel-size=2 --max-model-len=32768 "
        "--max-num-seqs=64 --max-num-batched-tokens=8192 --gpu-memory-utilization=0.9 --kv-cache-dtype=fp8 "
        "--enable-expert-parallel --enable-auto-tool-choice --tool-call-parser=gemma4 --reasoning-parser=gemma4"
    )
    assert parsed.problems == ()
    assert parsed.exact
    read = parsed.arguments
    assert (read.model, read.tensor_parallel_size, read.max_model_len) == ("google/gemma-4-26B-A4B-it", 2, 32768)
    assert (read.max_num_seqs, read.max_num_batched_tokens, read.gpu_memory_utilization) == (64, 8192, 0.9)
    assert read.enable_expert_parallel
    assert read.kv_cache_dtype == "fp8"
    assert parsed.values["tool_call_parser"] == "gemma4"
    assert parsed.places["tool_call_parser"] == 10


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("m --max-model-len 32k", "max_model_len", 32_000),
        ("m --max-model-len 32K", "max_model_len", 32_768),
        ("m --max-model-len=25.6k", "max_model_len", 25_600),
        ("m --max-model-len 1M", "max_model_len", 2**20),
        ("m --max-model-len auto", "max_model_len", -1),
        ("m --max_num_batched_tokens 8K", "max_num_batched_tokens", 8192),
        ("m --kv-cache-memory-bytes 4G", "kv_cache_memory_bytes", 4 * 2**30),
        ("m -tp 4", "tensor_parallel_size", 4),
        ("m -tp=4", "tensor_parallel_size", 4),
        ("m --tensor-parallel-si 4", "tensor_parallel_size", 4),
        ("m -tp 2 --tensor-parallel-size 4", "tensor_parallel_size", 4),
        ("m --enforce-eager --no-enforce-eager", "enforce_eager", False),
        ("m --no_async_scheduling", "async_scheduling", False),
        ("m --dtype half", "dtype", "float16"),
        ("m --cpu-offload-gb 8", "cpu_offload_gib", 8.0),
        ("m --limit-mm-per-prompt.image 2", "images", 2),
        ('m --limit-mm-per-prompt={"image":{"count":3}}', "images", 3),
        ("m --speculative-config.method ngram --speculative_config.num_speculative_tokens=3", "speculative", "ngram"),
        ("--model=m --max-num-seqs=3", "model", "m"),
        ("--max-num-seqs=3 m", "model", "m"),
    ],
)
def test_spellings_and_numbers_are_vllms(line: str, name: str, value: Any) -> None:
    parsed = parse(line)
    assert parsed.problems == ()
    assert getattr(parsed.arguments, name) == value


@pytest.mark.parametrize("flag", sorted(REMOVED))
def test_a_removed_argument_is_named_with_what_to_write_instead(flag: str) -> None:
    problem = only(parse(f"m {flag} --max-num-seqs=2" if flag in REMOVED_FLAGS else f"m {flag} 4 --max-num-seqs=2"))
    assert (problem.kind, problem.word, problem.place) == ("removed", flag, 1)
    assert problem.fix == REMOVED[flag]


def test_what_is_to_be_written_instead_of_a_removed_argument_exists() -> None:
    snapshot = load(versions()[-1])
    spellings = {option for argument in snapshot.arguments.values() for option in argument.options}
    for flag, instead in REMOVED.items():
        assert flag not in spellings
        for named in re.findall(r"--[a-z0-9-]+", instead):
            assert named in spellings, f"{flag}: {named}"


def test_a_mistyped_argument_is_unknown_and_the_right_one_is_named() -> None:
    problem = only(parse("m --max-model-length 4096 --enforce-eager"))
    assert (problem.kind, problem.word, problem.place) == ("unknown", "--max-model-length", 1)
    assert "--max-model-len" in problem.fix


@pytest.mark.parametrize(
    ("line", "kind", "word"),
    [
        ("m --kv-cache-dtype=fp9", "value", "fp9"),
        ("m --max-model-len=25.6K", "value", "25.6K"),
        ("m --tensor-parallel-size two", "value", "two"),
        ("m --compilation-config.nothing 3", "value", '{"nothing": 3}'),
        ("m --limit-mm-per-prompt image=4", "value", "image=4"),
        ("m --compilation-config.mode=banana", "value", '{"mode": "banana"}'),
        ("m -cc.mode=7", "value", '{"mode": 7}'),
        ("m --attention-config.backend=NOPE", "value", '{"backend": "NOPE"}'),
        ("m --attention-config.flash_attn_version=9", "value", '{"flash_attn_version": 9}'),
        ('m --kv-transfer-config={"kv_role":"x"}', "value", '{"kv_role":"x"}'),
        ('m --structured-outputs-config={"backend":"nope"}', "value", '{"backend":"nope"}'),
        ("m --pooler-config.pooling_type=MEANS", "value", '{"pooling_type": "MEANS"}'),
        ('m --eplb-config={"window_size":"x"}', "value", '{"window_size":"x"}'),
        ("m --eplb-config.window_size=0", "value", '{"window_size": 0}'),
        ("m --profiler-config.profiler=x", "value", '{"profiler": "x"}'),
        ("m -cc.pass_config.fuse_norm_quant=maybe", "value", '{"pass_config": {"fuse_norm_quant": "maybe"}}'),
        ('m -cc={"cudagraph_capture_sizes":[1,"x"]}', "value", '{"cudagraph_capture_sizes":[1,"x"]}'),
        ("m --max-num 3", "ambiguous", "--max-num"),
        ("m --max-num-seqs", "incomplete", "--max-num-seqs"),
        ("m --max-num-seqs --enforce-eager", "incomplete", "--max-num-seqs"),
        ("m --enforce-eager=true", "incomplete", "--enforce-eager"),
        ("m n", "stray", "n"),
        ("--model m n", "stray", "n"),
        ("m --config file.yaml", "config", "--config"),
        ("m --config=file.yaml", "config", "--config=file.yaml"),
        ("m --help", "ends", "--help"),
        ("--served-model-name=x --max-num-seqs=2", "incomplete", "--served-model-name"),
    ],
)
def test_what_vllm_does_not_start_with_is_a_problem(line: str, kind: str, word: str) -> None:
    problem = only(parse(line))
    assert (problem.kind, problem.word) == (kind, word)
    assert problem.fix


@pytest.mark.parametrize(
    "line",
    [
        "m -cc.mode=3 -cc.cudagraph_mode=FULL_AND_PIECEWISE",
        "m -cc.mode=VLLM_COMPILE",
        "m --attention-config.backend=flash_attn",
        'm -cc={"cudagraph_capture_sizes":[1,2,"4"],"cudagraph_num_of_warmups":"1"}',
        'm --kv-transfer-config={"kv_connector":"X","kv_role":"kv_both","kv_connector_extra_config":{"a":[1]}}',
        'm --kernel-config={"moe_backend":"Flashinfer-Cutlass","enable_jit_warmup":"off"}',
        'm --pooler-config={"pooling_type":null,"dimensions":256}',
    ],
)
def test_values_in_configurations_are_read_as_leniently_as_vllm_does(line: str) -> None:
    assert parse(line).problems == ()


@pytest.mark.parametrize("option", ["--dtype", "--max-model-len", "--limit-mm-per-prompt", "--lora-modules", "-tp"])
def test_two_dashes_are_not_a_value(option: str) -> None:
    parsed = parse(f"m {option}=-- --max-num-seqs=2")
    assert kinds(parsed) == ["value"]
    assert (parsed.arguments.model, parsed.arguments.max_num_seqs) == ("m", 2)


def test_the_module_does_not_take_its_first_word_for_the_model() -> None:
    parsed = parse_arguments(["m", "--max-num-seqs=2"], VERSION, program="module")
    assert only(parsed).kind == "ignored"
    assert parsed.arguments.model == ""


def test_one_problem_does_not_hide_another() -> None:
    parsed = parse(
        "m --swap-space 4 --no-such-thing --kv-cache-dtype fp9 --max-num-seqs many --max-model-len 4k --dtype"
    )
    assert kinds(parsed) == ["removed", "unknown", "value", "value", "incomplete"]
    assert (parsed.arguments.model, parsed.arguments.max_model_len) == ("m", 4000)


def test_another_version_is_read_by_the_nearest_that_is_known_and_says_so() -> None:
    parsed = parse("m", "0.19.1")
    assert not parsed.exact
    assert (parsed.version, parsed.asked) == (versions()[0], "0.19.1")
    assert nearest("99.0.0").version == versions()[-1]
    assert nearest("latest").version == versions()[-1]


def test_every_version_that_is_pinned_was_written_down() -> None:
    pinned = {ModelServer.find(ROOT).version}
    for file in sorted((ROOT / "platform/catalog/runtimes").glob("*.yaml")):
        pinned.add(str(yaml.safe_load(file.read_text())["version"]))
    missing = pinned - set(versions())
    assert not missing, f"run scripts/snapshot_vllm_arguments.py with vLLM {', '.join(sorted(missing))}"


# From here on, against vLLM itself.


class Oracle:
    """vLLM's own parser in a process that answers for as long as it is asked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask(self, words: list[str], program: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"program": program, "words": words}) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    server = ModelServer.find(ROOT)
    if not server.installed:
        pytest.fail(str(server.problem()))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    command = [str(server.python), "-P", str(CHECKOUT / "tests/support/vllm_parser_oracle.py")]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment | {"VLLM_LOGGING_LEVEL": "ERROR"},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield Oracle(process)
        finally:
            process.kill()


ARGUMENTS = [argument for argument in load(VERSION).arguments.values() if argument.dest not in ("config", "help")]
_TEXT = ("", "None", "auto", "a", "x.y", "a-B", "/m", "3", "-3", "a=b", "--", "-1.5", "a b", "é")
_WHOLE = (
    *("0", "1", "4096", "-1", " 8 ", "1_000", "3.5", "8k", "8K", "25.6k", "25.6K", "1m", "1M", "2g", "2G", "1t", "1T"),
    *("x", ""),
)
_JSON = ('{"image": 2}', "{}", "[1, 2]", "3", "null", '{"a": {"b": 1}}', "{a}", "image=2", "", "None")
_TYPES: dict[str, tuple[str, ...]] = {
    "int": _WHOLE,
    "human_int": _WHOLE,
    "human_int_or_auto": (*_WHOLE, "auto", "AUTO"),
    "float": ("0.9", "1", "1e3", "-0.5", "nan", "inf", "half", "", "None"),
    "json": _JSON,
    "json_or_str": _JSON,
    "object": ("{}", '{"nothing": 1}', "{", "[]", "text", '{"a": 8k}'),
    "devices": ("0,1", "GPU-1, 2", "", "x"),
}
_LORA = ("a=/b", '{"name": "a", "path": "/b"}', '{"name": "a"}', "a", "a=b,c", "")
_KEYS = (".image", ".a.b", ".x+", ".nothing_at_all")
_VALUES_OF_KEYS = ("2", "8k", "true", "a,b", "text", '{"c": 1}')
_MODELS: tuple[list[str], ...] = (["m"], [], ["--model", "m"], ["--model=m"], ["m", "n"])


def values_of(argument: Argument) -> tuple[str, ...]:
    values = _LORA if argument.kind == "lora" else _TYPES.get(argument.type, _TEXT)
    return (*values, *map(str, argument.choices or ()))


@st.composite
def said(draw: st.DrawFn) -> list[str]:
    """An argument as somebody might write it, right or wrong."""
    argument = draw(st.sampled_from(ARGUMENTS))
    if not argument.options:
        return [draw(st.sampled_from(_TEXT))]
    option = draw(st.sampled_from(argument.options))
    if draw(st.integers(0, 5)) == 0:
        option = option[: draw(st.integers(min(4, len(option)), len(option)))]
    if option.startswith("--") and draw(st.booleans()):
        option = "--" + option[2:].replace("-", "_")
    if argument.kind in ("boolean", "store_true"):
        return [option if draw(st.integers(0, 8)) else f"{option}=true"]
    if argument.type in ("json", "json_or_str", "object") and draw(st.booleans()):
        key, value = draw(st.sampled_from(_KEYS)), draw(st.sampled_from(_VALUES_OF_KEYS))
        return draw(st.sampled_from([[f"{option}{key}={value}"], [option + key, value]]))
    count = draw(st.integers(0, 3)) if argument.nargs == "+" else draw(st.sampled_from([1, 1, 1, 1, 1, 0]))
    values = [draw(st.sampled_from(values_of(argument))) for _ in range(count)]
    # vLLM's parser makes `--option=--` an empty list, which its engine refuses; here it is a problem.
    if len(values) == 1 and values != ["--"] and draw(st.booleans()):
        return [f"{option}={values[0]}"]
    return [option, *values]


_WRONG: tuple[list[str], ...] = (
    *(["--swap-space", "4"], ["--disable-log-requests"], ["--task=embed"], ["--nothing"], ["-x"], ["-tp8"], ["-O3"]),
    *(["-O", "0"], ["-O", "2"], ["-O=1"], ["--nothing.at.all", "3"], ["--max-num", "3"], ["-"], ["--help"], ["-O.x"]),
    ["-O"],
)
_LINES = st.builds(
    lambda model, parts: [*model, *(word for part in parts for word in part)],
    st.sampled_from(_MODELS),
    st.lists(said() | said() | said() | st.sampled_from(_WRONG), max_size=5),
)


def _each_form_once() -> Iterator[list[str]]:
    """One argument of each kind with each of its values, each spelling and each key: parsers go by kinds, not names."""
    for parts in _WRONG:
        yield ["m", *parts]
    for model in _MODELS:
        yield [*model, "--max_num_seqs=2"]
        yield [*model, "--served_model_name=x"]
    yield ["--model=", "--max-num-seqs=2"]
    of_a_kind: dict[tuple[object, ...], Argument] = {}
    for one in ARGUMENTS:
        limited = (one.choices is None, one.const is None, bool(one.fields))
        of_a_kind.setdefault((one.kind, one.type, one.optional, one.nargs, *limited), one)
    for argument in of_a_kind.values():
        if argument.options:
            yield from (["m", *words] for words in _forms(argument))


def _forms(argument: Argument) -> Iterator[list[str]]:
    option = argument.flag
    if argument.kind in ("boolean", "store_true"):
        for spelled in argument.options:
            yield from ([spelled], [spelled.replace("_", "-")[:-1]], ["--" + spelled[2:].replace("-", "_")])
        yield from ([option, f"--no-{option[2:]}"], [f"{option}=true"])
        return
    values = values_of(argument)
    if argument.type == "lowered":
        values = (*values, *(str(one).upper().replace("_", "-") for one in argument.choices or ()))
    numbers = (name for name, schema in (argument.fields or {}).items() if (schema or {}).get("type") == "integer")
    values = (*values, *(f'{{"{name}": 8k}}' for name in itertools.islice(numbers, 1)))
    for number, value in enumerate(values):
        yield [option, value] if number % 2 or value == "--" else [f"{option}={value}"]
    yield from ([option], [option, "--enforce-eager"], ["--" + option[2:].replace("-", "_"), values[0]])
    if argument.nargs == "+" or argument.kind == "append":
        yield from ([option, *values[:3]], [option, values[0], option, values[1]])
    if argument.type in ("json", "json_or_str", "object"):
        for number, (key, value) in enumerate(itertools.product(_KEYS, _VALUES_OF_KEYS)):
            yield [f"{option}{key}", value] if number % 2 else [f"{option}{key}={value}"]
        yield [f"{option}.a.b=1", f"{option}.a.c=2", f"{option}.x+=1", f"{option}.x+=2,3"]


def _compare(oracle: Oracle, words: list[str], program: str) -> None:
    theirs = oracle.ask(words, program)
    ours = parse_arguments(words, VERSION, program="serve" if program == "serve" else "module")
    refused = [problem for problem in ours.problems if problem.kind != "ignored"]
    assert (not refused) == theirs["accepted"], (words, ours.problems, theirs["told"])
    if theirs["accepted"]:
        for name, value in ours.values.items():
            if name in theirs["values"] and name != "lora_modules":
                assert json.dumps(value) == json.dumps(theirs["values"][name]), (words, name)


@pytest.mark.slow
def test_every_form_of_an_argument_is_read_as_vllm_reads_it(oracle: Oracle) -> None:
    for words in _each_form_once():
        _compare(oracle, words, "serve")


@pytest.mark.slow
@settings(
    # By night other lines each time, else the same ones, for several arguments in one; each form stands above.
    max_examples=examples(1000 if VLLM_ARGUMENTS.in_full else 50),
    derandomize=not os.environ.get(ALL),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(words=_LINES, program=st.sampled_from(["serve", "module"]))
@example(words=["m", "--max-model-len", "25.6K"], program="serve")
@example(words=["m", "-tp", "2", "-0.5", "x"], program="serve")
@example(words=["m", "--limit-mm-per-prompt.image", "2", "--limit_mm_per_prompt.video=1"], program="module")
def test_what_vllm_accepts_is_accepted_with_the_same_values(oracle: Oracle, words: list[str], program: str) -> None:
    _compare(oracle, words, program)


_EXAMPLES: list[Any] = [
    *(None, True, 0, 1, -1, 7.0, 7.5, 10**30, "7", "7.0", " 7", "7.5", "1e3", "1_000", "x", "", "ON", "auto", "nan"),
    *([], [1], ["x"], {}, {"a": 1}),
]


Place = tuple[str, ...]
Schema = dict[str, Any]


def _places(fields: dict[str, Any], above: Place = ()) -> Iterator[tuple[Place, Schema, list[Any]]]:
    """Every field of a configuration, what it takes, and the values that are listed for it or lie at its bounds."""
    for name, schema in fields.items():
        parts: list[Schema] = (schema or {}).get("anyOf", [schema or {}])
        listed = [value for part in parts for value in part.get("enum", ())]
        bounds = [part[key] for part in parts for key in part if key.lower().endswith(("minimum", "maximum"))]
        yield (
            (*above, name),
            schema or {},
            [
                *(form for value in listed for form in (value, str(value), str(value).upper())),
                *(bound + by for bound in bounds for by in (-1, 0, 1)),
            ],
        )
        for part in parts:
            if "properties" in part:
                yield from _places(part["properties"], (*above, name))


def _kind(schema: Any) -> str:
    """What a field takes, without the values and keys that are listed: all of one kind are judged alike."""
    if not isinstance(schema, dict):
        return repr(schema)
    told = []
    for key, value in sorted(schema.items()):
        if key == "enum":
            value = sorted({type(one).__name__ for one in value})
        elif key == "properties":
            value = "..."
        elif isinstance(value, list):
            value = [_kind(one) for one in value]
        told.append(f"{key}: {_kind(value)}")
    return f"({', '.join(told)})"


def _one_place_of_each_kind(
    values: list[tuple[Argument, Place, Schema, Any]],
) -> Iterator[tuple[Argument, Place, Schema, Any]]:
    """All values of the first field of each kind, of long lists the first ones."""
    first: dict[str, Place] = {}
    seen: Counter[Place] = Counter()
    for value in values:
        argument, place, schema, _ = value
        here = (argument.dest, *place)
        seen[here] += 1
        if first.setdefault(_kind(schema), here) == here and seen[here] <= len(_EXAMPLES) + 12:
            yield value


@pytest.mark.slow
def test_what_vllm_takes_in_a_configuration_is_taken(oracle: Oracle) -> None:
    """What else it refuses is what goes by several fields at once."""
    values = [
        (argument, place, schema, value)
        for argument in ARGUMENTS
        for place, schema, listed in _places(dict(argument.fields or {}))
        for value in [*_EXAMPLES, *listed]
    ]
    more = 0
    for argument, place, _, given_value in VLLM_ARGUMENTS.sample(values, _one_place_of_each_kind(values)):
        value = given_value
        for name in reversed(place):
            value = {name: value}
        words = ["--model=m", f"{argument.flag}={json.dumps(value)}"]
        refused = bool(parse_arguments(words, VERSION, program="module").problems)
        theirs = oracle.ask(words, "module")
        assert not (refused and theirs["accepted"]), words
        more += not refused and not theirs["accepted"] and argument.dest != "quantization_config"
    # So many of all values, and of those in the sample, go by several fields at once.
    assert more <= (97 if VLLM_ARGUMENTS.in_full else 3)


@pytest.mark.slow
def test_what_was_written_down_is_what_the_installed_vllm_says() -> None:
    server = ModelServer.find(ROOT)
    done = subprocess.run(
        [str(server.python), "-P", str(CHECKOUT / "scripts/snapshot_vllm_arguments.py"), "-"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    written = (ROOT / f"src/neuroscale/vllm/arguments-{server.version}.json").read_text()
    assert json.loads(done.stdout) == json.loads(written)
    assert done.stdout == written


def test_what_decides_about_memory_is_carried_to_the_planner() -> None:
    words = [
        *("m", "--enable-lora", "--max-loras=8", "--max-lora-rank=128", "--no-enable-chunked-prefill"),
        *("--num-gpu-blocks-override=100", "-dcp=8", "-pcp=2", "--performance-mode=throughput"),
        *("--mm-encoder-tp-mode=data", "--enable-eplb", '--eplb-config={"num_redundant_experts": 32}'),
    ]
    read = parse_arguments(words, VERSION).arguments
    assert (read.enable_lora, read.max_loras, read.max_lora_rank) == (True, 8, 128)
    assert (read.enable_chunked_prefill, read.num_gpu_blocks_override) == (False, 100)
    assert (read.decode_context_parallel_size, read.prefill_context_parallel_size, read.ranks) == (8, 2, 2)
    assert (read.performance_mode, read.mm_encoder_tp_mode) == ("throughput", "data")
    assert {part.dest for part in read.unplanned} == {"enable_eplb"}
    fewer = parse_arguments([*words, "--lora-target-modules=q_proj"], VERSION).arguments
    assert not fewer.enable_lora
    assert "lora_target_modules" in {one.dest for one in fewer.unplanned}


@pytest.mark.parametrize(
    ("words", "largest"),
    [
        ([], None),
        (["--max-cudagraph-capture-size=2048"], 2048),
        (["--cudagraph-capture-sizes", "1", "64", "8"], 64),
        (["--compilation-config", '{"max_cudagraph_capture_size": 256}'], 256),
    ],
)
def test_the_largest_cuda_graph_of_a_command_is_read(words: list[str], largest: int | None) -> None:
    assert parse_arguments(["--model=m", *words], "0.32.0").arguments.largest_graph == largest
