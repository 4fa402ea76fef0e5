"""FSD: buffers and buckets of data parallelism, with FSDP and without."""

from __future__ import annotations

from autorecipe.rules.declare import adjusts, requires
from autorecipe.schema import Stage

SHARDING = "ddp.data_parallel_sharding_strategy"
BOTH = ("bridge", "megatron-lm")
V1 = "FSDP and FSDP_VERSION == 1"
V2 = "FSDP and FSDP_VERSION == 2"


RULES = (
    requires(
        "FSD022",
        "MC-DDPCFG-01",
        "the version of Megatron FSDP is 1 or 2",
        when="isset(get(ddp.megatron_fsdp_version))",
        need="ddp.megatron_fsdp_version in (1, 2)",
        source="dc:257",
        why="Nothing else exists.",
        bad="ddp.megatron_fsdp_version=3",
        good="ddp.megatron_fsdp_version=1",
    ),
    requires(
        "FSD023",
        "MC-DDPCFG-02",
        "reusing the gradient buffer needs FP8 parameters",
        when="on(ddp.reuse_grad_buf_for_mxfp8_param_ag)",
        need="on(ddp.fp8_param_gather) or FP8_PARAM",
        source="dc:260",
        why="The buffer takes the gathered FP8 parameters.",
        bad="ddp.reuse_grad_buf_for_mxfp8_param_ag=true ddp.fp8_param_gather=false fp8_param=false",
        good="ddp.reuse_grad_buf_for_mxfp8_param_ag=false",
    ),
    requires(
        "FSD024",
        "MC-DDPCFG-03",
        "user buffers exclude expandable segments before torch 2.11",
        when="on(ddp.nccl_ub) and contains(env.PYTORCH_CUDA_ALLOC_CONF, 'expandable_segments:True')",
        need="TORCH >= version('2.11')",
        stage=Stage.LAUNCH,
        source="dc:265",
        why="NCCL registers addresses that the allocator moves.",
        bad="ddp.nccl_ub=true env.PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True package.torch=2.10",
        good="package.torch=2.11",
        fixes=({"env.PYTORCH_CUDA_ALLOC_CONF": None},),
    ),
    requires(
        "FSD025",
        "MC-DDPCFG-04",
        "local FP32 accumulation of some parameters excludes FP32 reduction of all",
        when="count(get(ddp.param_name_patterns_for_fp32_local_accumulation)) > 0",
        need="not on(ddp.grad_reduce_in_fp32)",
        source="dc:271",
        why="All would be accumulated in FP32 already.",
        bad="ddp.param_name_patterns_for_fp32_local_accumulation=[router] ddp.grad_reduce_in_fp32=true",
        good="ddp.grad_reduce_in_fp32=false",
    ),
    requires(
        "FSD026",
        "MC-DDPCFG-05",
        "buckets have a number or a size",
        when="isset(get(ddp.num_buckets))",
        need=("unset(get(ddp.bucket_size))", "ddp.num_buckets > 0"),
        source="dc:276",
        why="One gives the other.",
        bad="ddp.num_buckets=4 ddp.bucket_size=1000000",
        good="ddp.bucket_size=null",
    ),
    adjusts(
        "FSD027",
        "MC-DDPCFG-06",
        "pooled double buffers switch double buffers on",
        when="on(ddp.megatron_fsdp_max_pool_double_buffer) and not on(ddp.fsdp_double_buffer)",
        effective={"ddp.fsdp_double_buffer": True},
        source="dc:280",
        why="They are a kind of them.",
        bad="ddp.megatron_fsdp_max_pool_double_buffer=true ddp.fsdp_double_buffer=false",
        good="ddp.fsdp_double_buffer=true",
    ),
    requires(
        "FSD028",
        "MC-DDP-01",
        "per-token loss excludes averaging in the collective",
        when="on(calculate_per_token_loss)",
        need="not on(ddp.average_in_collective)",
        stage=Stage.BUILD,
        source="lm:megatron/core/distributed/distributed_data_parallel.py:247",
        why="Gradients are divided by the tokens of the whole step, not by the ranks.",
        bad="calculate_per_token_loss=true ddp.average_in_collective=true",
        good="ddp.average_in_collective=false",
        fixes=({"ddp.average_in_collective": False},),
    ),
    requires(
        "FSD029",
        "MC-DDP-02",
        "several optimizer instances need the distributed optimizer",
        when="get(ddp.num_distributed_optimizer_instances) > 1",
        need="DISTRIBUTED",
        stage=Stage.BUILD,
        source="lm:megatron/core/distributed/distributed_data_parallel.py:360",
        why="Instances are copies of it.",
        bad="ddp.num_distributed_optimizer_instances=2 ddp.use_distributed_optimizer=false",
        good="ddp.use_distributed_optimizer=true",
    ),
)
