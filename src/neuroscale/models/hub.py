"""Reads a model of the Hugging Face Hub: its config.json and the headers of its safetensors files, not the weights."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuroscale.core.errors import InputError, Problem
from neuroscale.core.units import MIB
from neuroscale.models.config_keys import LARGEST_CONFIG
from neuroscale.models.headers import INDEX, MOST_FILES, SINGLE, Header, entry_header

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import ModelInfo

TIMEOUT_SECONDS = 20.0
QUICK_SECONDS = 5.0
"""For a question that a caller can do without."""
_REMEMBERED_SECONDS = 300.0
_ELSEWHERE = "Name a folder that holds the model, or its config.json."


class HubOutOfReachError(InputError):
    """The Hub itself does not answer, so a question about another model would fail, too."""


class HubModel:
    """A repository of the Hub at the newest commit of its default branch, or at `revision`. Raises InputError if the
    repository does not exist or needs rights, or if the Hub cannot be reached."""

    def __init__(self, name: str, revision: str | None = None, timeout: float = TIMEOUT_SECONDS) -> None:
        from huggingface_hub import HfApi
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()
        self.name = name
        self._api: HfApi = HfApi()
        info: ModelInfo = self._ask(
            lambda: self._api.model_info(name, revision=revision, files_metadata=True, timeout=timeout)
        )
        self.revision: str = info.sha or revision or "main"
        self._sizes = {file.rfilename: file.size for file in info.siblings or ()}
        gated: bool | str | None = info.gated
        self.gated: bool | None = None if gated is None else gated is not False
        """Whether the Hub gives the files only to users whom the publisher admits; None if the Hub does not say."""
        tags = info.tags or []
        self.license: str | None = _tagged(tags, "license:")
        self.quantized_from: str | None = _tagged(tags, "base_model:quantized:")
        """The name of the model that this one is a quantised copy of, if its card names one."""

    @property
    def source(self) -> str:
        """The place that the facts come from, for messages."""
        return f"{self.name}@{self.revision[:12]} on the Hub"

    @property
    def weight_files_bytes(self) -> int | None:
        """Bytes of the safetensors files that vLLM loads; None without such files, or if the Hub lacks a size."""
        files = [file for file in self._sizes if file.endswith(".safetensors") and "/" not in file]
        own = [file for file in files if not file.startswith("consolidated")] or files
        sizes = [self._sizes[file] for file in own]
        known = [size for size in sizes if size is not None]
        return sum(known) if known and len(known) == len(sizes) else None

    def has(self, file: str) -> bool:
        """Whether the repository holds the file."""
        return file in self._sizes

    def text(self, file: str) -> bytes | None:
        """The bytes of a small file of the repository; None if the file does not exist."""
        if file not in self._sizes:
            return None
        size = self._sizes[file]
        if size is None or size > LARGEST_CONFIG:
            raise InputError(Problem(self.source, file, f"is larger than {LARGEST_CONFIG // MIB} MiB", _ELSEWHERE))
        path: str = self._ask(lambda: self._api.hf_hub_download(self.name, file, revision=self.revision))
        return Path(path).read_bytes()

    def headers(self) -> list[Header] | None:
        """The tensors of its safetensors files; None if it has no such files."""
        if not {SINGLE, INDEX} & self._sizes.keys():
            return None
        shards = sum(file.endswith(".safetensors") for file in self._sizes)
        if shards > MOST_FILES:
            raise InputError(Problem(self.source, "", f"holds {shards} safetensors files", _ELSEWHERE))
        told: Any = self._ask(
            lambda: self._api.get_safetensors_metadata(self.name, revision=self.revision, timeout=TIMEOUT_SECONDS)
        )
        found = []
        for file, metadata in told.files_metadata.items():
            for name, tensor in metadata.tensors.items():
                entry = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": list(tensor.data_offsets)}
                found.append(entry_header(name, entry, f"{self.source}: {file}"))
        return found

    def _ask(self, question: Any) -> Any:
        """The Hub's answer. Raises InputError if the Hub does not answer, or refuses."""
        import httpx
        from huggingface_hub import errors

        try:
            return question()
        except errors.GatedRepoError as error:
            raise self._problem("asks for its terms to be accepted", "Accept them there, and set HF_TOKEN.") from error
        except errors.RepositoryNotFoundError as error:
            fix = f"Correct the name, or set HF_TOKEN where it is private. {_ELSEWHERE}"
            raise self._problem("is not a model of the Hub", fix) from error
        except errors.RevisionNotFoundError as error:
            raise self._problem("has no such revision", "Correct the revision.") from error
        except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
            raise self._out_of_reach("the Hub cannot be reached, or HF_HUB_OFFLINE forbids it") from error
        except errors.HfHubHTTPError as error:
            status = error.response.status_code if error.response is not None else "an error"
            raise self._problem(f"could not be looked up: the Hub answered {status}", _ELSEWHERE) from error
        except (httpx.HTTPError, OSError) as error:
            raise self._out_of_reach(f"the Hub cannot be reached ({error})") from error
        except (errors.SafetensorsParsingError, errors.NotASafetensorsRepoError, json.JSONDecodeError) as error:
            raise self._problem("has safetensors files whose headers cannot be read", _ELSEWHERE) from error

    def _out_of_reach(self, why: str) -> HubOutOfReachError:
        return HubOutOfReachError(Problem(self.name, "", f"was not looked up: {why}", _ELSEWHERE))

    def _problem(self, message: str, fix: str) -> InputError:
        return InputError(Problem(self.name, "", message, fix))


class NewestRevisions:
    """The newest commits of models of the Hub. An answer, and a Hub that is out of reach, is remembered for five
    minutes, so that one run and one page ask once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, str | InputError]] = {}

    def __call__(self, name: str) -> str:
        """The newest commit of a model, of 40 hexadecimal digits. Raises InputError."""
        now = time.monotonic()
        for known in (name, ""):
            when, answer = self._known.get(known, (-math.inf, ""))
            if now < when + _REMEMBERED_SECONDS:
                break
        else:
            try:
                answer, known = HubModel(name, timeout=QUICK_SECONDS).revision, name
            except HubOutOfReachError as error:
                answer, known = error, ""
            except InputError as error:
                answer, known = error, name
            self._known[known] = (now, answer)
        if isinstance(answer, InputError):
            raise answer
        return answer


def _tagged(tags: Iterable[str], prefix: str) -> str | None:
    """The rest of the only tag with this prefix; None if no tag, or more than one, has the prefix."""
    found = [tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)]
    return found[0] if len(found) == 1 else None
