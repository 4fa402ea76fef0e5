"""CUD: what CUDA graphs can capture, and beside what."""

from __future__ import annotations

from autorecipe.rules.declare import adjusts, requires
from autorecipe.schema import Severity, Stage

CAPTURING = "GRAPH_IMPL != 'none'"
RANDOM = {"model.use_te_rng_tracker": True, "rng.te_rng_tracker": True}
FULL_RECOMPUTE_OFF = {"model.recompute_granularity": None, "model.recompute_method": None, "model.recompute_num_layers": None}


RULES = (
    requires(
        "CUD001",
        "BR-TERNG-01 MLM-CG-03",
        "CUDA graphs need Transformer Engine's random-number tracker",
        when=f"{CAPTURING} and not MULTIMODAL",
        need="on(use_te_rng_tracker) or on(rng.te_rng_tracker)",
        stage=Stage.BUILD,
        frameworks=("bridge",),
        source="br:src/megatron/bridge/models/gpt_provider.py:236",
        why="Graphs replay random states that only that tracker registers. Either flag turns both on; with neither the model "
        "cannot be built.",
        bad="cuda_graph_impl=transformer_engine use_te_rng_tracker=false rng.te_rng_tracker=false",
        good="use_te_rng_tracker=true rng.te_rng_tracker=true",
        fixes=(RANDOM, {"model.cuda_graph_impl": "none"}),
        derive_fixes=False,
    ),
    adjusts(
        "CUD002",
        "MLM-CG-03",
        "CUDA graphs switch Transformer Engine's random-number tracker on",
        when="GRAPH_IMPL != 'none' and rng.te_rng_tracker == False",
        effective={"rng.te_rng_tracker": True},
        stage=Stage.PARSE,
        source="ar:1960",
        why="Bridge stops instead.",
        bad="cuda_graph_impl=transformer_engine rng.te_rng_tracker=false",
        good="rng.te_rng_tracker=true",
    ),
    requires(
        "CUD006",
        "MC-CG-03",
        "CUDA graphs of parts exclude CPU offload",
        when="GRAPH_IMPL in ('local', 'transformer_engine')",
        need="not on(cpu_offloading)",
        source="tc:2801",
        why="Transfers would be captured with fixed addresses.",
        bad="cuda_graph_impl=transformer_engine cpu_offloading=true cpu_offloading_num_layers=1 num_layers=4 "
        "use_te_rng_tracker=true",
        good="cpu_offloading=false",
    ),
    requires(
        "CUD007",
        "MC-CG-04",
        "graph modules must not overlap and must exist",
        when="GRAPH_IMPL in ('local', 'transformer_engine') and count(GRAPHS) > 0",
        need=(
            "not (has(GRAPHS, 'moe') and has(GRAPHS, 'moe_router'))",
            "not has(GRAPHS, 'moe_preprocess') or has(GRAPHS, 'moe_router')",
            "not has(GRAPHS, 'moe', 'moe_router') or get(num_moe_experts) > 1",
        ),
        source="tc:2820",
        why="The router is part of the MoE layer, preprocessing follows the router, and dense models have neither.",
        bad="cuda_graph_impl=transformer_engine cuda_graph_modules=[moe,moe_router] num_moe_experts=8 use_te_rng_tracker=true "
        "moe_expert_capacity_factor=1.0 moe_pad_expert_input_to_capacity=true moe_router_load_balancing_type=aux_loss",
        good="cuda_graph_modules=[moe]",
    ),
    requires(
        "CUD008",
        "MC-CG-04",
        "graphing dense MLPs needs a dense layer",
        when="GRAPH_IMPL in ('local', 'transformer_engine') and has(GRAPHS, 'mlp') and MOE",
        need="islist(moe_layer_freq) and 0 in moe_layer_freq or (isnumber(moe_layer_freq) and moe_layer_freq > 1)",
        source="tc:2820",
        why="A model whose layers are all mixtures has no such module.",
        bad="cuda_graph_impl=transformer_engine cuda_graph_modules=[mlp] num_moe_experts=8 moe_layer_freq=1 "
        "use_te_rng_tracker=true",
        good="moe_layer_freq=2",
    ),
    requires(
        "CUD009",
        "MC-CG-05",
        "graphing whole MoE layers needs padded capacity",
        when="GRAPH_IMPL in ('local', 'transformer_engine') and has(GRAPHS, 'moe')",
        need="isset(get(moe_expert_capacity_factor)) and on(moe_pad_expert_input_to_capacity)",
        source="tc:2844",
        why="A graph has fixed shapes; only dropping and padding fixes the tokens of each expert. That changes "
        "convergence: graph "
        "moe_router and moe_preprocess instead.",
        bad="cuda_graph_impl=transformer_engine cuda_graph_modules=[moe] num_moe_experts=8 moe_expert_capacity_factor=null "
        "use_te_rng_tracker=true moe_token_dispatcher_type=alltoall",
        good="cuda_graph_modules=[moe_router,moe_preprocess]",
        fixes=({"model.cuda_graph_modules": ["attn", "moe_router", "moe_preprocess"]},),
    ),
    requires(
        "CUD010",
        "MC-CG-06",
        "graphing MoE preprocessing excludes unpadded capacity",
        when="GRAPH_IMPL in ('local', 'transformer_engine') and has(GRAPHS, 'moe_preprocess') "
        "and get(moe_token_dispatcher_type) == 'alltoall'",
        need=(
            "unset(get(moe_expert_capacity_factor)) or on(moe_pad_expert_input_to_capacity)",
            "not on(moe_router_padding_for_quantization) and not on(moe_router_padding_for_fp8)",
        ),
        source="tc:2850",
        why="The number of tokens would depend on the data.",
        bad="cuda_graph_impl=transformer_engine cuda_graph_modules=[moe_router,moe_preprocess] num_moe_experts=8 "
        "moe_token_dispatcher_type=alltoall moe_expert_capacity_factor=1.0 moe_pad_expert_input_to_capacity=false "
        "use_te_rng_tracker=true moe_router_load_balancing_type=aux_loss",
        good="moe_expert_capacity_factor=null",
    ),
    requires(
        "CUD011",
        "MC-CG-07 PIT-GRAPH-RECOMPUTE",
        "full recompute goes with full-iteration graphs only",
        when="GRAPH_IMPL in ('local', 'transformer_engine')",
        need="get(recompute_granularity) != 'full'",
        source="tc:2858",
        why="A graph of a part would have to contain its own repetition.",
        bad="cuda_graph_impl=transformer_engine recompute_granularity=full recompute_method=uniform recompute_num_layers=1 "
        "use_te_rng_tracker=true",
        good="recompute_granularity=null recompute_method=null recompute_num_layers=null",
        fixes=(FULL_RECOMPUTE_OFF, {"model.cuda_graph_impl": "none"}),
    ),
    requires(
        "CUD012",
        "MC-CG-08",
        "recomputed MoE layers have no graphed router",
        when="GRAPH_IMPL == 'transformer_engine' and has(get(recompute_modules), 'moe') and "
        "get(recompute_granularity) == 'selective'",
        need="not has(GRAPHS, 'moe_router')",
        source="tc:2868",
        why="The router would be replayed inside the recomputed layer.",
        bad="cuda_graph_impl=transformer_engine cuda_graph_modules=[moe_router] num_moe_experts=8 recompute_modules=[moe] "
        "recompute_granularity=selective use_te_rng_tracker=true",
        good="recompute_modules=[core_attn]",
    ),
    requires(
        "CUD013",
        "MC-CG-09",
        "graphed recompute excludes dropout and jitter",
        when="GRAPH_IMPL in ('local', 'transformer_engine') and get(recompute_granularity) == 'selective'",
        need=(
            "not (attention_dropout > 0 and has(get(recompute_modules), 'core_attn') and (count(GRAPHS) == 0 or "
            "has(GRAPHS, 'attn')))",
            "not (hidden_dropout > 0 and has(get(recompute_modules), 'mlp', 'moe') and (count(GRAPHS) == 0 or "
            "has(GRAPHS, 'mlp', 'moe')))",
            "not (isset(get(moe_input_jitter_eps)) and has(get(recompute_modules), 'moe') and (count(GRAPHS) == "
            "0 or has(GRAPHS, 'moe')))",
        ),
        source="tc:2883",
        why="The repeated forward pass would draw other random numbers than the first.",
        bad="cuda_graph_impl=transformer_engine cuda_graph_modules=[attn] recompute_granularity=selective "
        "recompute_modules=[core_attn] attention_dropout=0.1 hidden_dropout=0.0 use_te_rng_tracker=true",
        good="attention_dropout=0.0",
    ),
    requires(
        "CUD014",
        "MC-CG-10",
        "graphs with fine-grained offload take few combinations",
        when="GRAPH_IMPL != 'none' and on(fine_grained_activation_offloading)",
        need=(
            "GRAPH_IMPL != 'local' or (count(GRAPHS) > 0 and within(get(offload_modules), ('expert_fc1', "
            "'moe_act', 'fused_group_mlp')))",
            "not has(GRAPHS, 'moe')",
            "get(cuda_graph_warmup_steps) > 0 or unset(get(cuda_graph_warmup_steps))",
            "GRAPH_IMPL != 'full_iteration' or get(fine_grained_offloading_max_inflight_offloads) >= 0",
        ),
        source="tc:2935",
        why="Transfers inside a graph keep the addresses of the capture.",
        bad="cuda_graph_impl=full_iteration cuda_graph_modules=[] fine_grained_activation_offloading=true "
        "offload_modules=[core_attn] "
        "fine_grained_offloading_max_inflight_offloads=null use_te_rng_tracker=true env.NVTE_CPU_OFFLOAD_V1=1 "
        "rerun_state_machine.check_for_nan_in_loss=false",
        good="fine_grained_offloading_max_inflight_offloads=2",
    ),
    requires(
        "CUD015",
        "MC-CG-11 PIT-GRAPH-PACKING",
        "graphed attention takes no sequences packed in the batch",
        when="GRAPH_IMPL == 'transformer_engine' and (count(GRAPHS) == 0 or has(GRAPHS, 'attn')) "
        "and on(dataset.enable_in_batch_packing)",
        need="on(dataset.offline_packing_specs.pad_cu_seqlens) and on(PADDED)",
        stage=Stage.RUNTIME,
        source="lm:megatron/core/transformer/transformer_layer.py:1339",
        why="A graph accepts tensors of one shape; sequence boundaries change with every pack. Pad their number, "
        "graph no attention, "
        "or capture the full iteration.",
        bad="cuda_graph_impl=transformer_engine cuda_graph_modules=[attn] dataset.enable_in_batch_packing=true "
        "dataset.enable_offline_packing=false use_te_rng_tracker=true",
        good="dataset.enable_in_batch_packing=false",
        fixes=(
            {"dataset.enable_in_batch_packing": False},
            {"model.cuda_graph_impl": "none"},
        ),
    ),
    requires(
        "CUD018",
        "BR-CG-03 MLM-CG-01",
        "full-iteration graphs exclude the NaN check of the loss",
        when="GRAPH_IMPL == 'full_iteration'",
        need="not rerun_state_machine.check_for_nan_in_loss",
        stage=Stage.VALIDATE,
        frameworks=("bridge", "megatron-lm"),
        source="bc:1511 + ar:1237",
        why="The check reads a value on the host inside the graph.",
        bad="cuda_graph_impl=full_iteration cuda_graph_modules=[] rerun_state_machine.check_for_nan_in_loss=true "
        "use_te_rng_tracker=true",
        good="rerun_state_machine.check_for_nan_in_loss=false",
        fixes=({"rerun_state_machine.check_for_nan_in_loss": False},),
        note="switches a correctness check off",
    ),
    requires(
        "CUD019",
        "MLM-CG-04",
        "graphs with expandable segments need NCCL graph registration off",
        when="cuda_graph_impl == 'transformer_engine' and contains(env.PYTORCH_CUDA_ALLOC_CONF, 'expandable_segments:True')",
        need="env.NCCL_GRAPH_REGISTER == '0'",
        stage=Stage.LAUNCH,
        frameworks=("bridge", "megatron-lm"),
        source="ar:1966",
        why="NCCL would register addresses that the allocator moves: illegal memory access. Bridge does not check it.",
        bad="cuda_graph_impl=transformer_engine use_te_rng_tracker=true env.PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        good="env.NCCL_GRAPH_REGISTER=0",
        fixes=({"env.NCCL_GRAPH_REGISTER": "0"},),
    ),
    requires(
        "CUD026",
        "MLM-GTP-02",
        "graphs with sharded weights on Blackwell need node priorities",
        when="get(gtp_weight_remat_size) > 1 and GRAPH_IMPL != 'none' and CAPABILITY >= version('10.0')",
        need="env.CUDA_GRAPHS_USE_NODE_PRIORITY == '1'",
        stage=Stage.LAUNCH,
        source="ar:1542",
        why="Otherwise gathers wait behind computation.",
        bad="gpus=8 gpu=b200 gtp_weight_remat_size=2 cuda_graph_impl=transformer_engine environment=",
        good="env.CUDA_GRAPHS_USE_NODE_PRIORITY=1",
    ),
    requires(
        "CUD027",
        "BR-TERNG-01",
        "CUDA graphs of multimodal models want Transformer Engine's random-number tracker",
        when=f"{CAPTURING} and MULTIMODAL",
        need="on(use_te_rng_tracker) or on(rng.te_rng_tracker)",
        severity=Severity.WARN,
        stage=Stage.NEVER,
        source="br:src/megatron/bridge/models/gpt_provider.py:236 + "
        "br:src/megatron/bridge/models/qwen_vl/qwen3_vl_provider.py:309",
        why="Their providers build the model without the assertion of text models, so that nothing notices "
        "graphs that replay random "
        "states which only that tracker registers.",
        bad="model._class=Qwen3VLMoEModelProvider cuda_graph_impl=transformer_engine use_te_rng_tracker=false "
        "rng.te_rng_tracker=false",
        good="use_te_rng_tracker=true rng.te_rng_tracker=true",
        fixes=(RANDOM,),
        derive_fixes=False,
    ),
)
