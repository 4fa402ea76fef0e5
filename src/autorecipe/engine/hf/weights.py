"""Which Hugging Face tensors make which parameter of this engine's model, and how. Start reading at `list_pieces`.

The model is whole here: one process, no parallelism. Layouts are the distributed checkpoint's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from autorecipe.config.views import view_model
from autorecipe.engine.hf.families import HfModel


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One parameter.

    Attributes:
        name: in this engine's model.
        sources: names of the Hugging Face tensors, in order.
        groups: query groups where query, key and value are interleaved group by group; 0 where rows are laid end to end.
    """

    name: str
    sources: tuple[str, ...]
    groups: int = 0

    def join(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the parameter of its Hugging Face tensors."""
        if not self.groups:
            return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))
        parts = [tensor.reshape(self.groups, -1, *tensor.shape[1:]) for tensor in tensors]
        return torch.cat(parts, dim=1).reshape(-1, *tensors[0].shape[1:])

    def split(self, parameter: torch.Tensor, rows: Sequence[int]) -> list[torch.Tensor]:
        """Return the Hugging Face tensors of the parameter.

        Args:
            parameter: whole.
            rows: rows of each tensor.
        """
        if len(self.sources) == 1:
            return [parameter]
        if not self.groups:
            return list(parameter.split(list(rows)))
        grouped = parameter.reshape(self.groups, -1, *parameter.shape[1:])
        parts = grouped.split([count // self.groups for count in rows], dim=1)
        return [part.reshape(-1, *parameter.shape[1:]) for part in parts]


def list_pieces(model: HfModel) -> list[Piece]:
    """Return every parameter of a model, in the order of its layers."""
    shape = view_model(model.as_run())
    found = [Piece(name="embedding.word_embeddings.weight", sources=("model.embed_tokens.weight",))]
    for layer in range(shape.num_layers):
        own, theirs = f"decoder.layers.{layer}", f"model.layers.{layer}"
        attention, mlp = f"{own}.self_attention", f"{own}.mlp"
        found.append(Piece(name=f"{own}.input_layernorm.weight", sources=(f"{theirs}.input_layernorm.weight",)))
        for kind in ("weight", "bias") if shape.add_qkv_bias else ("weight",):
            names = tuple(f"{theirs}.self_attn.{part}_proj.{kind}" for part in "qkv")
            found.append(Piece(name=f"{attention}.linear_qkv.{kind}", sources=names, groups=shape.num_query_groups))
        if shape.qk_layernorm:
            for part in "qk":
                source = f"{theirs}.self_attn.{part}_norm.weight"
                found.append(Piece(name=f"{attention}.{part}_layernorm.weight", sources=(source,)))
        found.append(Piece(name=f"{attention}.linear_proj.weight", sources=(f"{theirs}.self_attn.o_proj.weight",)))
        found.append(Piece(name=f"{own}.pre_mlp_layernorm.weight", sources=(f"{theirs}.post_attention_layernorm.weight",)))
        if not shape.num_moe_experts:
            found += _feed_forward(mlp, f"{theirs}.mlp")
            continue
        found.append(Piece(name=f"{mlp}.router.weight", sources=(f"{theirs}.mlp.gate.weight",)))
        for expert in range(shape.num_moe_experts):
            found += _feed_forward(f"{mlp}.experts.local_experts.{expert}", f"{theirs}.mlp.experts.{expert}")
    found.append(Piece(name="decoder.final_layernorm.weight", sources=("model.norm.weight",)))
    if not shape.share_embeddings_and_output_weights:
        found.append(Piece(name="output_layer.weight", sources=("lm_head.weight",)))
    return found


def _feed_forward(own: str, theirs: str) -> list[Piece]:
    gate_and_up = (f"{theirs}.gate_proj.weight", f"{theirs}.up_proj.weight")
    return [
        Piece(name=f"{own}.linear_fc1.weight", sources=gate_and_up),
        Piece(name=f"{own}.linear_fc2.weight", sources=(f"{theirs}.down_proj.weight",)),
    ]


def rows_of(piece: Piece, model: HfModel) -> list[int]:
    """Return the rows of each Hugging Face tensor of a parameter that joins several."""
    shape = view_model(model.as_run())
    if piece.groups:
        keys = shape.num_query_groups * shape.kv_channels
        return [shape.num_attention_heads * shape.kv_channels, keys, keys]
    ffn = shape.moe_ffn_hidden_size if ".experts." in piece.name else shape.ffn_hidden_size
    assert ffn is not None
    return [ffn] * len(piece.sources)
