"""Reads a Hugging Face `config.json` strictly: every field is understood, known to change nothing, or refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autorecipe.errors import Problem

HARMLESS = frozenset(
    (
        # what the model is called, and who made the file
        *("_name_or_path", "architectures", "auto_map", "model_type", "transformers_version", "torch_dtype", "dtype"),
        *("id2label", "label2id", "num_labels", "problem_type", "task_specific_params", "finetuning_task", "_commit_hash"),
        # tokens and generation
        *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id", "unk_token_id"),
        *(
            "use_cache",
            "cache_implementation",
            "output_attentions",
            "output_hidden_states",
            "return_dict",
            "chunk_size_feed_forward",
        ),
        # training only
        *("attention_dropout", "resid_pdrop", "embd_pdrop", "initializer_range", "pretraining_tp", "ep_size"),
        *("output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "aux_loss_alpha", "seq_aux"),
        # what another field says
        *("max_window_layers", "initial_context_length", "experts_per_token", "qk_head_dim", "num_nextn_predict_layers"),
        *("attn_implementation", "_attn_implementation", "is_encoder_decoder"),
    )
)
"""Fields that change nothing of what the weights compute."""

_EMPTY: tuple[Any, ...] = (None, False, {}, [], "")


class Fields:
    """The fields of one `config.json`, and what was wrong with them."""

    def __init__(self, path: Path, config: Mapping[str, Any], *, family: str) -> None:
        """Start reading.

        Args:
            path: of the file, for messages.
            config: its content.
            family: `model_type`, for messages.
        """
        self.path, self.family = path, family
        self.problems: list[Problem] = []
        self._config = config
        self._seen: set[str] = set()

    def take(self, name: str, default: Any = None) -> Any:
        """Return a field; an unset one is the default."""
        self._seen.add(name)
        value = self._config.get(name)
        return default if value is None else value

    def size(self, name: str, default: int | None = None) -> int:
        """Return a whole number from 1 on; 1 where it is not there or no number, which is noted as a problem."""
        value = self.take(name, default)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        message = f"{name} is missing" if value is None else f"{name}={value!r} is no whole number from 1 on"
        self._note(message)
        return 1

    def expect(self, name: str, *legal: Any, why: str = "") -> None:
        """Refuse any value but these; unset is always legal.

        Args:
            name: of the field.
            legal: values that are converted.
            why: what another value would need, as a clause.
        """
        value = self.take(name)
        if value is not None and value not in legal:
            self.refuse(f"{name}={value!r}", why)

    def refuse(self, what: str, why: str = "") -> None:
        """Note that something is not converted."""
        self._note(f"{what} is not converted for {self.family}{': ' + why if why else ''}")

    def finish(self) -> None:
        """Note every field that nobody took, that is set, and that is not known to change nothing."""
        for name in sorted(set(self._config) - self._seen - HARMLESS):
            if self._config[name] not in _EMPTY:
                self.refuse(f"{name}={self._config[name]!r}", "it is not known here what it changes")

    def _note(self, message: str) -> None:
        self.problems.append(Problem(path=str(self.path), code="hf-unsupported", message=message))
