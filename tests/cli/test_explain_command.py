"""`neuroscale explain --log`: the cause, the lines, and the next configuration that the fit accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from command_line import commands
from printed_commands import commands_in, refusal
from roots import ROOT

TOO_LONG = (
    "(EngineCore_DP0 pid=1094) ValueError: To serve at least one request with the models's max seq len (131072), "
    "(4.54 GiB KV cache is needed, which is larger than the available KV cache memory (1.71 GiB). Based on the "
    "available memory, the estimated maximum model length is 49152. Try increasing `gpu_memory_utilization`.\n"
)
COMMAND = (
    "(APIServer pid=1) INFO [api_server.py:1] vLLM API server version 0.11.0\n"
    "(APIServer pid=1) INFO [utils.py:253] non-default args: {"
    "'model': 'openai/gpt-oss-120b', 'max_model_len': 131072}\n"
)


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return commands(capsys, monkeypatch, "explain", "--repository", ROOT)


@pytest.fixture
def log(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "server.log"
        path.write_text(text)
        return path

    return write


def test_a_served_name_stands_in_the_way_of_no_next_configuration(explain: Any, log: Any) -> None:
    card = ("--model", "openai/gpt-oss-120b", "--accelerator", "nvidia-h100-80gb")
    refused = "vllm: error: unrecognized arguments: --swap-space 4\n"
    for text, arguments in ((TOO_LONG, "--max-model-len 131072"), (refused, "--max-model-len=8192 --swap-space 4")):
        said = explain("--log", log(text), *card, "--vllm-args", f"--served-model-name chat {arguments}", "--json")
        following = said.json["next"]
        assert "--served-model-name chat" in " ".join(following["vllm_args"]).replace("=", " ")
        assert not any("--served-model-name" in change for change in following["changed"])
        assert following["fit"]["verdict"] in ("fits", "tight")


def test_programs_read_the_cause_and_the_next_configuration(explain: Any, log: Any) -> None:
    said = explain("--log", log(COMMAND + TOO_LONG), "--accelerator", "nvidia-h100-80gb", "--json")
    assert said.status == 1
    answer = said.json
    assert (answer["known"], answer["cause"]) == (True, "length_exceeds_kv")
    assert answer["numbers"] == {
        "length": "131072",
        "needed_gib": "4.54",
        "available_gib": "1.71",
        "longest": "49152",
    }
    assert answer["evidence"][0]["line"] == 3
    assert answer["server"]["version"] == "0.11.0"
    assert {"known", "cause", "evidence", "sentence", "next", "also"} <= answer.keys()
    following = answer["next"]
    assert {"vllm_args", "answers", "fit"} <= following.keys()
    assert "--max-model-len=49152" in following["changed"]
    assert "overrides.max_model_len=49152" in following["answers"]
    assert following["fit"]["verdict"] in ("fits", "tight")
    assert following["fit"]["max_model_len"] == 49152


def test_people_read_what_to_send(explain: Any, log: Any) -> None:
    said = explain("--log", log(COMMAND + TOO_LONG), "--accelerator", "nvidia-h100-80gb")
    assert "The longest context does not fit the KV cache (length_exceeds_kv)." in said.out
    assert "line 3: ValueError: To serve at least one request" in said.out
    assert "neuroscale update SERVICE --set=overrides.max_model_len=49152" in said.out
    assert {refusal(one) for one in commands_in(said.out)} == {""}


def test_options_hold_before_the_log(explain: Any, log: Any) -> None:
    asked = ("--model", "Qwen/Qwen3-8B", "--accelerator", "nvidia-l4", "--vllm-args", "--max-model-len=40960")
    answer = explain("--log", log(COMMAND + TOO_LONG), *asked, "--json").json
    assert answer["next"]["model"] == "Qwen/Qwen3-8B"
    assert answer["next"]["accelerator"] == "nvidia-l4"


def test_the_length_that_the_server_measured_holds_before_the_plans(explain: Any, log: Any) -> None:
    measured = TOO_LONG.replace("(1.71 GiB)", "(4.50 GiB)").replace("is 49152", "is 32768")
    asked = ("--model", "Qwen/Qwen3-8B", "--accelerator", "nvidia-l4", "--vllm-args", "--max-model-len=40960")
    following = explain("--log", log(measured), *asked, "--json").json["next"]
    assert following["vllm_args"] == ["--max-model-len=32768"]
    assert following["fit"]["kv_cache_tokens"] >= 32768


def test_a_share_that_is_free_comes_with_what_else_must_change(explain: Any, log: Any) -> None:
    short = "ValueError: Free memory on device cuda:0 (30.12/31.84 GiB) on startup is less than desired GPU memory "
    asked = ("--model", "nvidia/Qwen3.6-27B-NVFP4", "--accelerator", "nvidia-geforce-rtx-5090")
    words = ("--vllm-version", "0.20.1", "--vllm-args", "--max-model-len=8192 --gpu-memory-utilization=0.95")
    said = explain("--log", log(f"{short}utilization (0.95, 30.25 GiB)."), *asked, *words, "--json")
    following = said.json["next"]
    assert following["fit"]["verdict"] in ("fits", "tight")
    names = {word.partition("=")[0] for word in following["changed"]}
    assert {"--gpu-memory-utilization", "--max-num-seqs"} <= names


def test_a_misspelt_flag_is_renamed(explain: Any, log: Any) -> None:
    asked = ("--model", "Qwen/Qwen3-8B", "--accelerator", "nvidia-l40s", "--vllm-args", "--max-model-length 8192")
    answer = explain(
        "--log", log("vllm: error: unrecognized arguments: --max-model-length 8192"), *asked, "--json"
    ).json
    assert answer["cause"] == "unknown_flag"
    assert answer["next"]["vllm_args"] == ["--max-model-len", "8192"]


def test_without_a_model_the_cause_is_named_alone(explain: Any, log: Any) -> None:
    answer = explain("--log", log(TOO_LONG), "--json").json
    assert answer["cause"] == "length_exceeds_kv"
    assert answer["next"] is None
    assert "--model" in answer["no_next"]


def test_a_healthy_start_stands_beside_the_plan(explain: Any, log: Any) -> None:
    text = COMMAND + (
        "INFO [gpu_model_runner.py:1] Model loading took 65.9651 GiB and 41.2 seconds\n"
        "INFO [gpu_worker.py:1] Available KV cache memory: 3.4 GiB\nINFO:     Application startup complete.\n"
    )
    said = explain("--log", log(text), "--accelerator", "nvidia-h100-80gb", "--vllm-args", "--max-num-seqs=16")
    assert said.status == 0
    assert "Healthy: the server started." in said.out
    assert "weights: 65.97 GiB (plan: " in said.out


def test_an_unknown_log_is_said_to_be_unknown(explain: Any, log: Any) -> None:
    said = explain("--log", log("ZorgError: the flux is inverted\n"), "--json")
    assert said.status == 1
    assert (said.json["known"], said.json["cause"]) == (False, None)
    assert said.json["evidence"] == [{"line": 1, "text": "ZorgError: the flux is inverted"}]


def test_what_a_log_holds_cannot_reach_the_terminal_or_show_a_token(explain: Any, log: Any) -> None:
    said = explain("--log", log("ZorgError: \x1b]0;owned\x07\x1b[2J\u202e::error::x hf_abcdefghijklmn\n"))
    assert "\x1b" not in said.out
    assert "\u202e" not in said.out
    assert "::error::" not in said.out
    assert "hf_abc" not in said.out


def test_a_log_that_cannot_be_read(explain: Any, tmp_path: Path) -> None:
    said = explain("--log", tmp_path / "none.log")
    assert said.status == 2
    assert "cannot be read" in said.err
    assert explain().status == 2


def test_people_and_programs_read_how_sure_a_cause_is(explain: Any, log: Any) -> None:
    path = log("ZorgError: the flux is inverted\nOSError: [Errno 98] Address already in use\n")
    said = explain("--log", path)
    assert "Not sure: an error before it is not explained by it." in said.out
    assert "line 1 speaks against it: ZorgError" in said.out
    answer = explain("--log", path, "--json").json
    assert (answer["sure"], answer["against"]["line"]) == (False, 1)
    answer = explain("--log", log("OSError: [Errno 98] Address already in use\n"), "--json").json
    assert (answer["sure"], answer["doubt"], answer["against"]) == (True, None, None)


def test_a_log_that_takes_too_long_is_not_judged(explain: Any, log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuroscale.explain.diagnosis.SECONDS", 0.0)
    said = explain("--log", log("OSError: [Errno 98] Address already in use\n"))
    assert said.status == 1
    assert said.out.startswith("Not judged: The search for its cause takes more")
    answer = explain("--log", log("x"), "--json").json
    assert (answer["verdict"], answer["known"], answer["cause"]) == ("not_judged", False, None)
