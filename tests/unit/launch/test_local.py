import pytest

from autorecipe.errors import NegativeAnswer
from autorecipe.launch.local import render_local
from autorecipe.launch.submission import submit_local
from autorecipe.launch.training import build_training_command, render_override
from autorecipe.schema.launch import Allocation


def test_one_host_starts_one_process_per_gpu():
    command = build_training_command(recipe="llama3_8b_pretrain_config", dataset="mock", runner=("uv", "run"))
    plan = render_local(command, Allocation(num_nodes=1, gpus_per_node=8), recipe="llama3_8b_pretrain_config")
    assert plan.command == (
        "uv run python -m torch.distributed.run --nproc_per_node=8 scripts/training/run_recipe.py \\\n"
        "    --recipe llama3_8b_pretrain_config --dataset mock"
    )


def test_several_hosts_meet_on_the_first():
    command = build_training_command(recipe="r_config", overrides=["model.cuda_graph_scope=[attn,moe]"])
    plan = render_local(
        command, Allocation(num_nodes=2, gpus_per_node=8), recipe="r_config", master_host="node01", port=1234, run_id="x"
    )
    assert len(plan.per_node) == 2
    for rank, text in enumerate(plan.per_node):
        flat = text.replace(" \\\n   ", "")
        assert f"--nnodes=2 --node_rank={rank} --rdzv_backend=c10d --rdzv_endpoint=node01:1234 --rdzv_id=x" in flat
        assert "'model.cuda_graph_scope=[attn,moe]'" in flat


def test_a_missing_first_host_is_left_to_the_shell_and_named_there():
    plan = render_local(build_training_command(recipe="r"), Allocation(num_nodes=2, gpus_per_node=1), recipe="r")
    assert '--rdzv_endpoint="${MASTER_ADDR:?first host}:29500"' in plan.command


def test_the_recipes_variables_come_first_and_yield_to_the_shell():
    command = build_training_command(recipe="r", environment={"NCCL_NVLS_ENABLE": "0"})
    plan = render_local(command, Allocation(num_nodes=1, gpus_per_node=1), recipe="r")
    assert plan.command.startswith('NCCL_NVLS_ENABLE="${NCCL_NVLS_ENABLE:-0}" python -m torch.distributed.run')


def test_several_hosts_are_not_started_from_one():
    plan = render_local(build_training_command(recipe="r"), Allocation(num_nodes=2, gpus_per_node=1), recipe="r")
    with pytest.raises(NegativeAnswer, match="2 hosts"):
        submit_local(plan)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), (True, "true"), (4, "4"), (3e-4, "0.0003"), ([1, None, "attn"], "[1,null,attn]"), ("a2a", "a2a")],
)
def test_override_values_follow_the_grammar(value, text):
    assert render_override("a.b", value) == f"a.b={text}"
