"""Starts guidellm without torch. guidellm's own Python runs this file; nothing here imports it.

Of torch, guidellm 0.8 takes for texts the loop over its prompts alone, in one module. While that module is imported,
small stand-ins take torch's place: with torch and CUDA's libraries the client would be ten times as large. Whatever
the stand-ins do not do, they refuse.

Standard input is a pipe from the program that started this one. When that program dies in whatever way, the pipe ends,
and guidellm ends with all of its processes, so that nobody's benchmark goes on unseen.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any


class _Generator:
    def manual_seed(self, seed: int) -> _Generator:  # noqa: ARG002 - it orders a shuffle, which is refused below
        return self


class _Generic:
    def __class_getitem__(cls, item: Any) -> type:
        return cls


class _IterableDataset(_Generic):
    pass


class _DataLoader(_Generic):
    """Hands a dataset's items on, in their order, in this process."""

    def __init__(
        self,
        dataset: Any,
        *,
        batch_size: int,
        shuffle: bool,
        collate_fn: Callable[[list[Any]], Any],
        num_workers: int,
        prefetch_factor: int,  # noqa: ARG002 - of workers alone
        generator: _Generator,  # noqa: ARG002
    ) -> None:
        if batch_size != 1 or shuffle or num_workers:
            raise NotImplementedError("batches, a shuffle and workers of the data loader need torch")
        self.dataset = dataset
        self._collate = collate_fn

    def __iter__(self) -> Iterator[Any]:
        for item in self.dataset:
            yield self._collate([item])


def _stand_in() -> None:
    import datasets  # noqa: F401 - it looks for torch as it is imported, and should find none
    from transformers import AutoTokenizer, PreTrainedTokenizerBase  # noqa: F401 - likewise

    names = ("torch", "torch.utils", "torch.utils.data", "torch.utils.data.dataloader", "torch.utils.data.dataset")
    torch, utils, data, dataloader, dataset = modules = tuple(ModuleType(name) for name in names)
    vars(torch).update(utils=utils, Generator=_Generator)
    vars(utils).update(data=data)
    vars(data).update(dataloader=dataloader, dataset=dataset, get_worker_info=lambda: None)
    vars(dataloader).update(DataLoader=_DataLoader)
    vars(dataset).update(IterableDataset=_IterableDataset)
    sys.modules.update(zip(names, modules, strict=True))
    try:
        import guidellm.data.loaders  # noqa: F401
    finally:
        for name in names:
            del sys.modules[name]


def _end_with_the_caller() -> None:
    while os.read(0, 1):  # sys.stdin would hold a lock, at which the interpreter's own end fails
        pass
    os.killpg(0, signal.SIGKILL)


# Its worker processes import this file, too.
_stand_in()

if __name__ == "__main__":
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    from guidellm.cli import cli

    cli()
