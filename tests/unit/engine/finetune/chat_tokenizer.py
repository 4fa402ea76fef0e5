"""A byte-level tokenizer of 400 ids with the end marks of several chat formats, and their templates in short."""

from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from autorecipe.engine.data.tokenizer import HuggingFaceTokenizer

MARKS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<bos>",
    "<think>",
    "</think>",
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|return|>",
]
TEXT = "the quick brown fox jumps over the lazy dog. user assistant system model Hello! how are you? fine, thanks 12 + 30 = 42\n"

_ASKS = "{% if add_generation_prompt %}{{ '%s' }}{% endif %}"
TEMPLATES = {
    "chatml": (
        r"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        + _ASKS.replace("%s", r"<|im_start|>assistant\n")
    ),
    "llama3": (
        r"{{ '<|begin_of_text|>' }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}"
        r"{{ m.content | trim + '<|eot_id|>' }}{% endfor %}"
        + _ASKS.replace("%s", r"<|start_header_id|>assistant<|end_header_id|>\n\n")
    ),
    "gemma": (
        r"{% for m in messages %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}"
        r"{{ m.content | trim + '<end_of_turn>\n' }}{% endfor %}" + _ASKS.replace("%s", r"<start_of_turn>model\n")
    ),
    "thinking": (  # earlier answers are shown without their thoughts, the last one with a block of them
        r"{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
        r"{% endif %}{% endfor %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
        r"{% if m.role == 'assistant' and loop.index0 > ns.last %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
        r"{{ m.content + '<|im_end|>\n' }}{% endfor %}" + _ASKS.replace("%s", r"<|im_start|>assistant\n")
    ),
    "channels": (  # the last answer ends otherwise than earlier ones
        r"{% for m in messages %}{{ '<|start|>' + m.role + ('<|channel|>final' if m.role == 'assistant' else '') }}"
        r"{{ '<|message|>' + m.content + ('<|return|>' if m.role == 'assistant' and loop.last else '<|end|>') }}{% endfor %}"
        + _ASKS.replace("%s", "<|start|>assistant")
    ),
    "marked": (
        r"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}{% generation %}"
        r"{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}"
        r"{% endfor %}" + _ASKS.replace("%s", r"<|im_start|>assistant\n")
    ),
    "strict": (
        "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('no ' + m.role) }}{% endif %}"
        "{{ m.content }}{% endfor %}"
    ),
    "counting": "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}",
}


@cache
def _trained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=MARKS, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT] * 20, trainer)
    return tokenizer


def save_tokenizer(folder: Path, template: str | None = None) -> Path:
    """Save the tokenizer into a folder, as `transformers` reads it."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=_trained(), eos_token="<|endoftext|>", bos_token="<|begin_of_text|>", additional_special_tokens=MARKS
    )
    fast.chat_template = template
    fast.save_pretrained(folder)
    return folder


def load(folder: Path, name: str | None = None) -> HuggingFaceTokenizer:
    """Save and load it with one of the templates."""
    return HuggingFaceTokenizer(str(save_tokenizer(folder, None if name is None else TEMPLATES[name])))
