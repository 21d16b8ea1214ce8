"""Installs vLLM for the CPU in an environment of its own, and makes its tiny models; both are in the cache."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from neuroscale.core.tool_cache import PACKAGES_STAMP
from neuroscale.tools.machine import write_stamp
from neuroscale.tools.model_server import AMX_PERMISSION, MODELS, WRITER, ModelServer
from neuroscale.tools.packages import make_environment
from neuroscale.tools.running import run

# No look-ups on the network, and no usage reports.
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
_NOT_COMPILED = "PYTHONDONTWRITEBYTECODE"
# The modules that the processes of a tiny model's server import.
_STARTED = (
    "vllm.entrypoints.openai.api_server",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_worker",
    "vllm.model_executor.models.llama",
    "vllm.model_executor.models.qwen3_moe",
)
# Otherwise a start runs another process that inspects a model's class, which imports all of vLLM once more.
_INSPECTION = """
from vllm.model_executor.models import ModelRegistry
for name in ("LlamaForCausalLM", "Qwen3MoeForCausalLM"):
    ModelRegistry.models[name].inspect_model_cls()
"""


class Serving:
    """The programs and files that serve a real model on this machine. `uv` and `python`: the checkout's."""

    def __init__(self, repository: Path, uv: Path, python: Path, logs: Path) -> None:
        self._repository = repository
        self._uv = uv
        self._python = python
        self._logs = logs
        self._server = ModelServer.find(repository)

    @property
    def version(self) -> str:
        return self._server.version

    def installed(self) -> bool:
        return self._server.installed

    def complete(self) -> bool:
        return self._server.problem() is None

    def install(self) -> None:
        """Install the locked packages. The files of an interrupted installation are removed."""
        folder = self._server.environment
        log = self._logs / "serve.log"
        requirements = self._repository / "requirements" / "serve.txt"
        make_environment(self._uv, self._python, requirements, folder, f"Installing vLLM {self.version}", log)
        # Later users may not write there, and compiling the imports takes more than half of a start's time.
        variables = {**os.environ, **_OFFLINE, "VLLM_CACHE_ROOT": str(self._server.cache)}
        variables.pop(_NOT_COMPILED, None)
        for code in (f"import {', '.join(_STARTED)}", _INSPECTION):
            run(
                [self._server.python, "-P", "-W", "ignore", "-c", code],
                doing=f"Compiling vLLM {self.version}",
                log=log,
                env=variables,
            )
        write_stamp(folder / PACKAGES_STAMP, folder.name)

    def may_use_amx(self) -> bool:
        return self._server.may_use_amx

    def permit_amx(self) -> None:
        """Let each Python process of the environment ask for the processor's matrix registers."""
        temporary = self._server.environment / ".new-amx"
        temporary.write_text(AMX_PERMISSION, encoding="utf-8")
        temporary.replace(self._server.amx_permission)

    def make_models(self) -> None:
        """Write the models; the folder appears whole or not at all."""
        folder = self._server.models
        temporary = folder.with_name(f".new-{folder.name}")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for name, entry in zip(MODELS, ModelServer.entries(self._repository), strict=True):
            run(
                [self._server.python, "-I", WRITER, entry, temporary / name],
                doing=f"Making {name}",
                log=self._logs / f"{name}.log",
                env={**os.environ, **_OFFLINE},
            )
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
