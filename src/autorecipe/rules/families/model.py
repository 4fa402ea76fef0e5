"""MDL: sizes, attention, positions, activations, multi-token prediction, and what single models add."""

from __future__ import annotations

from collections.abc import Iterator

from autorecipe.rules.context import Context
from autorecipe.rules.declare import adjusts, computes, requires
from autorecipe.rules.rule import Breach, Verdict
from autorecipe.schema import Fix, Severity, Stage

BOTH = ("bridge", "megatron-lm")


@computes(
    "MDL001",
    "BR-MODEL-04",
    "models with a table of pipeline layouts need a listed size, or a layout",
    formula="(PP, VP) in the model's table, or pipeline_model_parallel_layout set",
    paths="pipeline_model_parallel_layout pipeline_model_parallel_size virtual_pipeline_model_parallel_size num_layers",
    stage=Stage.RECIPE,
    source="br:src/megatron/bridge/models/sarvam/sarvam_provider.py:59 + "
    "br:src/megatron/bridge/recipes/deepseek/h100/deepseek_v3.py:70",
    why="Their layers do not split evenly; the recipe looks the split up and stops at a size that is not in its table.",
    bad="recipe=deepseek_v3_pretrain_config num_layers=61 PP=6 pipeline_model_parallel_layout=null",
    good="PP=1",
)
def layout_table(context: Context) -> Iterator[Verdict]:
    """Check PP and VP against the table of the recipe's family."""
    name = context.config.recipe
    table = next((sizes for prefix, sizes in TABLES.items() if name.startswith(prefix)), None)
    if table is None or context.model("pipeline_model_parallel_layout") is not None:
        return
    edges = [context.model(f"num_layers_in_{end}_pipeline_stage") for end in ("first", "last")]
    size = (context.layout.pp, context.layout.vp)
    if size in table or edges != [None, None] or context.layout.pp == 1:
        return
    near = sorted(table, key=lambda pair: (abs(pair[0] - size[0]), abs(pair[1] - size[1])))
    yield Breach(
        message=f"PP={size[0]}, VP={size[1]} is not in the recipe's table of pipeline layouts",
        legal={"pp,vp": [list(pair) for pair in sorted(table)]},
        fixes=(
            Fix(
                overrides={
                    "model.pipeline_model_parallel_size": near[0][0],
                    "model.virtual_pipeline_model_parallel_size": near[0][1] if near[0][1] > 1 else None,
                },
                note="needs the recipe's layout of that size",
            ),
        ),
        hint="give model.pipeline_model_parallel_layout yourself",
    )


COMMON = {(1, 1), (4, 1), (8, 1), (4, 2), (16, 1), (8, 2), (4, 4)}
TABLES = {
    "deepseek_v3": COMMON,
    "kimi_k2": COMMON | {(2, 8)},
    "moonlight": {(1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (4, 2)},
    "olmoe": {(1, 1), (2, 1), (4, 1), (2, 2)},
    "glm_45v": {(1, 1), (4, 1), (8, 1), (16, 1)},
}
"""(PP, VP) in the tables of library recipes (recipes/*/h100 @ 0.6.2)."""

SIZES = (
    requires(
        "MDL002",
        "MLM-SIZE-04 MC-FFN-01",
        "heads divide the hidden size, or have a size of their own",
        when="unset(kv_channels) and isset(hidden_size) and isset(num_attention_heads)",
        need="hidden_size % num_attention_heads == 0",
        stage=Stage.PARSE,
        frameworks=BOTH,
        source="ar:1332 + tc:1453",
        why="Megatron-LM asserts; Megatron-Core and Bridge round down silently.",
        bad="hidden_size=1000 num_attention_heads=32 kv_channels=null",
        good="hidden_size=1024",
        hint="set model.kv_channels",
    ),
    adjusts(
        "MDL003",
        "MLM-SIZE-03 MC-FFN-01 TRAP-FFN",
        "an unset FFN size differs between the frameworks",
        when="unset(ffn_hidden_size) and gated_linear_unit and hidden_size >= 1",
        effective={"model.ffn_hidden_size": "=hidden_size * 8 // 3 // 64 * 64"},
        severity=Severity.WARN,
        stage=Stage.PARSE,
        frameworks=("megatron-lm",),
        source="ar:1325 + tc:1453",
        why="With SwiGLU Megatron-LM takes two thirds of 4h, rounded down to 64; Bridge takes 4h. State the size.",
        bad="hidden_size=4096 ffn_hidden_size=null gated_linear_unit=true",
        good="ffn_hidden_size=11008",
    ),
    adjusts(
        "MDL004",
        "MC-FFN-01",
        "an unset FFN size is four times the hidden size",
        when="unset(ffn_hidden_size) and hidden_size >= 1",
        effective={"model.ffn_hidden_size": "=hidden_size * 4"},
        severity=Severity.INFO,
        frameworks=("bridge",),
        source="tc:1453",
        why="With a gated activation most models use less.",
        bad="hidden_size=4096 ffn_hidden_size=null",
        good="ffn_hidden_size=11008",
    ),
    requires(
        "MDL005",
        "MLM-SIZE-02",
        "the sizes of the model are set",
        when="unset(num_layers) or unset(hidden_size) or unset(num_attention_heads) or unset(max_position_embeddings)",
        need=(
            "get(num_layers) or isset(get(hybrid_layer_pattern)) or not unset(num_layers)",
            "isset(hidden_size)",
            "isset(num_attention_heads)",
            "isset(max_position_embeddings)",
        ),
        stage=Stage.PARSE,
        frameworks=("megatron-lm",),
        source="ar:1314",
        why="Megatron-LM has no defaults for them.",
        bad="num_layers=2 hidden_size=null num_attention_heads=2 max_position_embeddings=512",
        good="hidden_size=256",
    ),
    requires(
        "MDL006",
        "MLM-SIZE-01 MLM-SIZE-06",
        "layers and sequence have one name each",
        need=(
            "not (isset(get(num_layers)) and isset(get(mlm.encoder_num_layers)))",
            "not (isset(get(model.seq_length)) and isset(get(mlm.encoder_seq_length)))",
        ),
        stage=Stage.PARSE,
        source="ar:1306 + ar:1347",
        why="The encoder's names are the old ones.",
        bad="num_layers=2 mlm.encoder_num_layers=2",
        good="mlm.encoder_num_layers=null",
    ),
    adjusts(
        "MDL007",
        "MLM-GQA-01 TRAP-GQA",
        "query groups act with --group-query-attention only",
        when="get(mlm.group_query_attention) == False and isset(num_query_groups) and num_query_groups != num_attention_heads",
        effective={"model.num_query_groups": "=num_attention_heads"},
        severity=Severity.ERROR,
        stage=Stage.NEVER,
        source="lm:megatron/training/argument_utils.py:333",
        why="Without the flag Megatron-LM silently trains multi-head attention: another architecture.",
        bad="mlm.group_query_attention=false num_attention_heads=32 num_query_groups=8",
        good="mlm.group_query_attention=true",
        fixes=({"mlm.group_query_attention": True},),
    ),
    requires(
        "MDL008",
        "MLM-HETERO-01",
        "a heterogeneous configuration is Llama-like",
        when="isset(get(heterogeneous_layers_config_path)) or isset(get(heterogeneous_layers_config_encoded_json))",
        need=(
            "gated_linear_unit",
            "get(normalization) == 'RMSNorm'",
            "get(position_embedding_type) == 'rope'",
        ),
        stage=Stage.PARSE,
        frameworks=BOTH,
        source="ar:242",
        why="Its blocks are pruned Llama blocks; all sizes must equal those of the file.",
        bad="heterogeneous_layers_config_path=/c.json gated_linear_unit=false normalization=RMSNorm position_embedding_type=rope",
        good="gated_linear_unit=true",
    ),
    adjusts(
        "MDL009",
        "MC-MUP-01",
        "maximal-update scaling derives multipliers",
        when="on(use_mup) and isset(get(mup_base_hidden_size)) and hidden_size >= 1",
        effective={"model.mup_width_mult": "=hidden_size / mup_base_hidden_size"},
        severity=Severity.INFO,
        source="tc:2534",
        why="Attention scale and output multiplier follow from the width.",
        bad="use_mup=true mup_base_hidden_size=256 hidden_size=1024",
        good="use_mup=false",
    ),
)

ATTENTION = (
    requires(
        "MDL010",
        "MLM-MLA-01",
        "multi-latent attention excludes grouped queries",
        when="on(multi_latent_attention)",
        need="not on(mlm.group_query_attention)",
        stage=Stage.PARSE,
        source="ar:1974",
        why="Keys and values come from the latent.",
        bad="multi_latent_attention=true mlm.group_query_attention=true",
        good="mlm.group_query_attention=false",
    ),
    requires(
        "MDL011",
        "MLM-MLA-02",
        "fused MLA projections need MLA",
        when="on(mla_down_proj_fusion)",
        need="multi_latent_attention",
        stage=Stage.PARSE,
        frameworks=BOTH,
        source="ar:1977",
        why="Other attention has no such projection.",
        bad="mla_down_proj_fusion=true multi_latent_attention=false",
        good="mla_down_proj_fusion=false",
    ),
    requires(
        "MDL012",
        "MC-MLAFUSE-01",
        "fused MLA projections shard over TP",
        when="on(mla_down_proj_fusion) and TP > 1 and isset(get(kv_lora_rank)) and isset(get(qk_pos_emb_head_dim))",
        need=(
            "unset(get(q_lora_rank)) or q_lora_rank % TP == 0",
            "(kv_lora_rank + qk_pos_emb_head_dim) % TP == 0",
        ),
        stage=Stage.BUILD,
        source="lm:megatron/core/transformer/multi_latent_attention.py:1368",
        why="Each rank computes whole columns.",
        bad="multi_latent_attention=true mla_down_proj_fusion=true TP=5 q_lora_rank=1536 kv_lora_rank=512 qk_pos_emb_head_dim=64 "
        "num_attention_heads=10 sequence_parallel=true",
        good="TP=2",
    ),
    requires(
        "MDL013",
        "MC-ROPE-03",
        "multi-latent attention takes certain rotary settings",
        when="on(multi_latent_attention)",
        need=(
            "not on(rotary_interleaved)",
            "not on(apply_rope_fusion) or get(rope_type) in ('yarn', None)",
            "not on(attention_output_gate)",
            "not on(cache_mla_latents) or not on(apply_rope_fusion)",
        ),
        source="tc:3346",
        why="Its rotary part is a slice of each head.",
        bad="multi_latent_attention=true rotary_interleaved=true",
        good="rotary_interleaved=false",
    ),
    requires(
        "MDL014",
        "MC-ROPE-01",
        "interleaved fused rotary positions need Transformer Engine 2.3",
        when="on(apply_rope_fusion) and on(rotary_interleaved)",
        need="TE >= version('2.3')",
        source="tc:2519",
        why="The kernel came with that release.",
        bad="apply_rope_fusion=true rotary_interleaved=true package.transformer-engine=2.2",
        good="package.transformer-engine=2.3",
        fixes=({"model.apply_rope_fusion": False},),
    ),
    requires(
        "MDL015",
        "MC-ROPE-02",
        "a fused QKV rotation excludes an output gate",
        when="on(fused_single_qkv_rope)",
        need="not on(attention_output_gate)",
        source="tc:2524",
        why="The gate lies between query and key.",
        bad="fused_single_qkv_rope=true attention_output_gate=true",
        good="fused_single_qkv_rope=false",
    ),
    requires(
        "MDL016",
        "MC-ROPE-04",
        "layers without rotary positions repeat evenly, or are listed",
        when="isset(get(no_rope_freq)) and LAYERS > 0",
        need=(
            "not isnumber(no_rope_freq) or num_layers % no_rope_freq == 0",
            "not islist(no_rope_freq) or count(no_rope_freq) == num_layers",
            "not on(flash_decode)",
        ),
        source="tc:3142",
        why="The pattern covers all layers.",
        bad="no_rope_freq=3 num_layers=32",
        good="no_rope_freq=4",
    ),
    adjusts(
        "MDL017",
        "MLM-ROPE-01",
        "the old rotary flag sets the position type",
        when="on(mlm.use_rotary_position_embeddings) and get(position_embedding_type) != 'rope'",
        effective={"model.position_embedding_type": "rope"},
        stage=Stage.PARSE,
        source="ar:1627",
        why="A translator that does not know the flag keeps learned absolute positions.",
        bad="mlm.use_rotary_position_embeddings=true position_embedding_type=learned_absolute",
        good="position_embedding_type=rope",
    ),
    requires(
        "MDL018",
        "MLM-ROPE-02",
        "a model without position table uses rotary positions",
        when="get(mlm.add_position_embedding) == False",
        need="get(position_embedding_type) in ('rope', 'none', 'mrope', 'yarn')",
        stage=Stage.PARSE,
        source="ar:1634",
        why="--no-position-embedding is deprecated for position_embedding_type.",
        bad="mlm.add_position_embedding=false position_embedding_type=learned_absolute",
        good="position_embedding_type=rope",
    ),
    requires(
        "MDL019",
        "MLM-ROPE-03",
        "relative positions need Transformer Engine",
        when="get(position_embedding_type) == 'relative'",
        need="get(transformer_impl) in ('transformer_engine', None)",
        stage=Stage.PARSE,
        frameworks=BOTH,
        source="ar:1640",
        why="The local attention takes no bias.",
        bad="position_embedding_type=relative transformer_impl=local",
        good="transformer_impl=transformer_engine",
    ),
    requires(
        "MDL020",
        "MLM-ROPE-04",
        "multimodal rotary positions need their sections",
        when="get(position_embedding_type) == 'mrope'",
        need="isset(get(mrope_section))",
        stage=Stage.PARSE,
        frameworks=("megatron-lm",),
        source="ar:1645",
        why="They say which part of a head turns with time, height and width.",
        bad="position_embedding_type=mrope mrope_section=null",
        good="mrope_section=[16,24,24]",
    ),
    requires(
        "MDL021",
        "MLM-ROPE-05",
        "rope types other than rope are for MLA",
        when="isset(get(rope_type)) and not on(multi_latent_attention)",
        need="rope_type == 'rope'",
        stage=Stage.PARSE,
        source="lm:megatron/training/argument_utils.py:340",
        why="yarn as a rope_type belongs to multi-latent attention.",
        bad="rope_type=yarn multi_latent_attention=false",
        good="rope_type=rope",
    ),
    requires(
        "MDL022",
        "MLM-QK-01",
        "clipping of queries and keys takes certain values",
        when="on(qk_clip)",
        need=("TE >= version('2.9')", "0 < qk_clip_alpha < 1", "qk_clip_threshold > 0"),
        stage=Stage.PARSE,
        frameworks=BOTH,
        source="ar:1614",
        why="Weights are scaled by (threshold / logit) ** alpha.",
        bad="qk_clip=true qk_clip_alpha=1.5 qk_clip_threshold=100 package.transformer-engine=2.9",
        good="qk_clip_alpha=0.5",
    ),
    requires(
        "MDL023",
        "MLM-QK-02",
        "logging the largest attention logit needs Transformer Engine 2.9",
        when="on(log_max_attention_logit)",
        need="TE >= version('2.9')",
        stage=Stage.PARSE,
        frameworks=BOTH,
        source="ar:1623",
        why="Older kernels do not return it.",
        bad="log_max_attention_logit=true package.transformer-engine=2.8",
        good="package.transformer-engine=2.9",
        fixes=({"model.log_max_attention_logit": False},),
    ),
    requires(
        "MDL024",
        "MLM-LOCALATT-01",
        "local attention needs the local layer specification",
        when="name(get(attention_backend)) == 'local'",
        need="get(transformer_impl) == 'local'",
        stage=Stage.PARSE,
        source="ar:437",
        why="Transformer Engine's layers bring their own attention.",
        bad="attention_backend=AttnBackend.local transformer_impl=transformer_engine",
        good="transformer_impl=local",
    ),
)

RULES = (layout_table, *SIZES, *ATTENTION)
