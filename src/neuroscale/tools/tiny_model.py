"""Writes a tiny model with random weights: a folder that vLLM serves like any other.

Run by the Python of the serving packages: `tiny_model.py ENTRY FOLDER`, where ENTRY is a model's file of the catalog.
What the model answers are random words in plain ASCII.
"""

from __future__ import annotations

import pydoc_data.topics
import string
import sys
from pathlib import Path
from typing import Any

import yaml

_END, _PAD = "<|end|>", "<|pad|>"
_ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
_CHAT = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_SEED = 20240406


def write(folder: Path, config: dict[str, Any]) -> None:
    """Write config, weights (bfloat16, always the same ones), tokenizer and chat template into a folder."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = _tokenizer(int(config["vocab_size"]), int(config["max_position_embeddings"]))
    settings = AutoConfig.for_model(**config)
    settings.eos_token_id, settings.pad_token_id, settings.bos_token_id = tokenizer.eos_token_id, 0, None
    torch.manual_seed(_SEED)
    model = AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)


def _tokenizer(size: int, longest: int) -> Any:
    """A tokenizer of exactly `size` tokens: letters and words of Python's own documentation."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    # What is not ASCII becomes a question mark, so that each token is text, and each answer too.
    tokenizer.normalizer = normalizers.Replace(Regex(r"[^\x20-\x7e\n]"), "?")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    written = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str("\n ")
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[_PAD, _END, *_ROLES],
        initial_alphabet=[
            *(string.ascii_letters + string.digits + string.punctuation),
            *"".join(text for text, _ in written),
        ],
        show_progress=False,
    )
    tokenizer.train_from_iterator(pydoc_data.topics.topics.values(), trainer)
    if tokenizer.get_vocab_size() != size:
        raise SystemExit(f"The tokenizer has {tokenizer.get_vocab_size()} tokens instead of {size}.")
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=_END,
        pad_token=_PAD,
        model_max_length=longest,
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = _CHAT
    return made


if __name__ == "__main__":
    entry, target = sys.argv[1:]
    write(Path(target), yaml.safe_load(Path(entry).read_text(encoding="utf-8"))["config"])
