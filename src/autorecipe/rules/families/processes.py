"""LCH: how the processes of a run start: devices, groups, connections, clients."""

from __future__ import annotations

from autorecipe.rules.declare import adjusts, requires
from autorecipe.rules.rule import BRIDGE
from autorecipe.schema import Severity, Stage

BOTH = ("bridge", "megatron-lm")


RULES = (
    requires(
        "LCH010",
        "BR-INIT-02",
        "the seed is positive",
        when="isset(rng.seed)",
        need="rng.seed > 0",
        stage=Stage.INIT,
        source="br:src/megatron/bridge/training/initialize.py:849",
        why="Zero means unset there.",
        bad="rng.seed=0",
        good="rng.seed=1234",
        fixes=({"rng.seed": 1234},),
        note="another seed: a new convergence experiment",
    ),
    requires(
        "LCH011",
        "BR-INIT-03",
        "upstream needs CUDA devices",
        when="isset(given.has_cuda)",
        need="given.has_cuda == True",
        stage=Stage.INIT,
        source="br:src/megatron/bridge/training/initialize.py:91",
        why="Bridge stops without one; autorecipe's own engine runs small models on the CPU.",
        bad="given.has_cuda=false",
        good="given.has_cuda=true",
        hint="use --engine core to run on the CPU",
    ),
    requires(
        "LCH012",
        "BR-INIT-04 BR-INIT-01",
        "decentralised process groups exclude gloo and hierarchical context parallelism",
        when="on(dist.use_decentralized_pg)",
        need=("not on(dist.use_gloo_process_groups)", "unset(get(hierarchical_context_parallel_sizes))"),
        stage=Stage.VALIDATE,
        frameworks=(BRIDGE,),
        source="bc:1553 + br:src/megatron/bridge/training/initialize.py:457",
        why="They are made without the global registry.",
        bad="dist.use_decentralized_pg=true dist.use_gloo_process_groups=true",
        good="dist.use_gloo_process_groups=false",
    ),
    adjusts(
        "LCH013",
        "BR-INIT-06",
        "lazy initialisation builds the model on the CPU",
        when="on(dist.lazy_mpu_init) and use_cpu_initialization == False",
        effective={"model.use_cpu_initialization": True},
        stage=Stage.VALIDATE,
        source="bc:1548",
        why="There are no process groups yet.",
        bad="dist.lazy_mpu_init=true use_cpu_initialization=false",
        good="use_cpu_initialization=true",
    ),
    requires(
        "LCH014",
        "BR-IPR-01",
        "in-process restart makes the process group itself",
        when="on(inprocess_restart.enabled)",
        need="given.process_group_initialized != True",
        stage=Stage.INIT,
        source="br:src/megatron/bridge/training/pretrain.py:87",
        why="It must be able to tear it down.",
        bad="inprocess_restart.enabled=true given.process_group_initialized=true",
        good="given.process_group_initialized=false",
    ),
    requires(
        "LCH015",
        "MLM-CDMC-01",
        "TP or CP before Blackwell needs one CUDA connection",
        when="(TP > 1 or CP > 1) and CAPABILITY < version('10.0') and not on(FSDP) and not "
        "on(dist.use_torch_fsdp2) and not on(OVERLAP_EP)",
        need="env.CUDA_DEVICE_MAX_CONNECTIONS == '1'",
        stage=Stage.LAUNCH,
        source="ar:1478",
        why="Communication kernels must be queued before the computation they overlap with. Bridge does not check it.",
        bad="gpus=8 gpu=h100 TP=2 num_attention_heads=2 num_query_groups=2 environment=",
        good="env.CUDA_DEVICE_MAX_CONNECTIONS=1",
        fixes=({"env.CUDA_DEVICE_MAX_CONNECTIONS": "1"},),
    ),
    requires(
        "LCH016",
        "MLM-CDMC-02",
        "TP or CP with FSDP or expert overlap has conflicting wishes",
        when="(TP > 1 or CP > 1) and CAPABILITY < version('10.0') and (on(FSDP) or on(OVERLAP_EP))",
        need="env.CUDA_DEVICE_MAX_CONNECTIONS != '1'",
        severity=Severity.WARN,
        stage=Stage.LAUNCH,
        source="ar:1460",
        why="TP wants one connection, FSDP and expert overlap want several: upstream warns and runs.",
        bad="gpus=8 gpu=h100 TP=2 num_attention_heads=2 num_query_groups=2 ddp.use_megatron_fsdp=true "
        "checkpoint.ckpt_format=fsdp_dtensor env.CUDA_DEVICE_MAX_CONNECTIONS=1",
        good="env.CUDA_DEVICE_MAX_CONNECTIONS=32",
        fixes=({"env.CUDA_DEVICE_MAX_CONNECTIONS": None},),
    ),
    requires(
        "LCH017",
        "MLM-MSC-01",
        "multi-storage paths need their client",
        when="on(mlm.enable_msc)",
        need="given.has_multistorageclient == True",
        stage=Stage.PARSE,
        source="ar:161",
        why="--disable-msc goes without it.",
        bad="mlm.enable_msc=true given.has_multistorageclient=false",
        good="given.has_multistorageclient=true",
        fixes=({"mlm.enable_msc": False},),
    ),
)
