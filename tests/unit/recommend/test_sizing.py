import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autorecipe.catalog.hardware import load_gpus
from autorecipe.catalog.store import open_catalog
from autorecipe.recommend.sizing import NotChosen, Sizer, lay_out_hosts, size_recipe
from autorecipe.schema.estimate import Verdict as MemoryVerdict
from autorecipe.schema.hardware import Cluster
from autorecipe.schema.layout import Layout
from autorecipe.schema.recommendation import Verdict
from autorecipe.schema.run import RunConfig

CATALOG = open_catalog("0.6.2")
H100 = load_gpus()["h100"]


def sizer_of(name, **options):
    recipe = CATALOG.load(name)
    config = RunConfig(values=recipe.fields, release="0.6.2", recipe=name, kind=recipe.kind.value, mode=recipe.mode.value)
    return Sizer(config, **options), recipe


def size(name, gpus, *, gpu="h100", **options):
    sizer, recipe = sizer_of(name, **options)
    return size_recipe(sizer, lay_out_hosts(load_gpus()[gpu], gpus, gpus_per_node=None), recipe_gpus=recipe.gpus)


def cluster(gpus, gpu=H100):
    return Cluster(gpu=gpu, num_gpus=gpus, gpus_per_node=min(8, gpus))


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("qwen3_30b_a3b_sft_config", 16),
        ("qwen3_235b_a22b_peft_config", 16),
        ("llama3_8b_128k_pretrain_config", 64),
        ("llama3_8b_pretrain_config", 8),
        ("qwen3_235b_a22b_pretrain_config", 128),
        ("llama3_70b_pretrain_config", 64),
    ],
)
def test_a_layout_that_runs_is_kept(name, gpus):
    sizing = size(name, gpus)
    assert sizing.verdict is Verdict.AS_SHIPPED
    assert sizing.layout == sizing.shipped


@pytest.mark.parametrize(
    ("name", "gpus", "minimum", "layout"),
    [
        ("llama3_8b_16k_pretrain_config", 4, 16, Layout(tp=4, pp=2, cp=2, sequence_parallel=True)),
        ("llama3_8b_64k_pretrain_config", 8, 32, Layout(tp=4, pp=2, cp=4, sequence_parallel=True)),
        ("llama3_70b_sft_config", 16, 32, Layout(tp=8, pp=4)),
    ],
)
def test_a_recipe_on_fewer_gpus_than_it_needs_is_resized_and_its_need_is_known(name, gpus, minimum, layout):
    sizing = size(name, gpus)
    assert (sizing.shipped, sizing.shipped.minimum_world_size) == (layout, minimum)
    assert sizing.verdict is Verdict.RESIZED
    assert sizing.layout.fits_world(gpus)


def test_what_does_not_fit_says_how_many_would():
    sizing = size("llama31_405b_pretrain_config", 128)
    assert sizing.seq_length == 131072
    assert (sizing.verdict, sizing.needed_gpus) == (Verdict.DOES_NOT_FIT, 256)
    assert sizing.needed.layout.fits_world(256)


def test_the_arithmetic_of_model_states_decides_without_a_search():
    # 8.03e9 parameters x 12 bytes (weights 2, gradients 4, optimizer 12 over two ranks) are 90 GiB: more than an H100 has.
    sizer, _ = sizer_of("llama3_8b_pretrain_config")
    shipped = sizer.as_shipped(cluster(2))
    assert sizer.judge(shipped, cluster(2)) is MemoryVerdict.OOM
    assert sizer.estimate(shipped, cluster(2)).peak_bytes > 8.03e9 * 12


def test_more_gpus_only_add_data_parallelism():
    sizing = size("llama3_70b_pretrain_config", 64)
    assert (sizing.data_parallel_size, sizing.num_microbatches) == (2, 256)


def test_half_the_gpus_keep_tp_in_the_host_and_move_experts():
    sizing = size("deepseek_v3_pretrain_config", 512)
    assert sizing.layout.ep in (16, 32)
    assert sizing.layout.pp == 16
    assert sizing.layout.fits_world(512)


def test_a_longer_sequence_gets_context_parallelism():
    sizing = size("llama3_8b_pretrain_config", 8, seq_length=32768)
    assert sizing.verdict is Verdict.RESIZED
    assert 32768 // sizing.layout.cp <= 8192


def test_a_count_that_misses_the_batch_uses_fewer_and_says_so():
    sizing = size("llama3_8b_pretrain_config", 12)
    assert (sizing.num_gpus, sizing.idle_gpus) == (8, 4)


def test_a_benchmark_is_never_moved():
    sizer, _ = sizer_of("qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config", moves=False)
    assert sizer.choose(cluster(8)) is NotChosen.REFUSED


def test_hosts_hold_what_they_usually_hold():
    gb200 = load_gpus()["gb200"]
    assert lay_out_hosts(gb200, 64, gpus_per_node=None).num_nodes == 16
    assert lay_out_hosts(H100, 12, gpus_per_node=None).gpus_per_node == 6
    assert lay_out_hosts(H100, 16, gpus_per_node=None, num_nodes=4).gpus_per_node == 4


@settings(max_examples=60, deadline=None)
@given(
    gpus=st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256]),
    name=st.sampled_from(
        ["llama3_8b_pretrain_config", "qwen3_30b_a3b_pretrain_config", "qwen3_8b_sft_config", "llama3_70b_peft_config"]
    ),
    gpu=st.sampled_from(["h100", "gb200"]),
)
def test_every_answer_is_legal(gpus, name, gpu):
    sizing = size(name, gpus, gpu=gpu)
    if sizing.verdict is Verdict.DOES_NOT_FIT:
        assert sizing.needed_gpus is None or sizing.needed_gpus > gpus
        return
    recipe = CATALOG.load(name)
    layout, batch = sizing.layout, recipe.fields["train.global_batch_size"]
    assert sizing.num_gpus + sizing.idle_gpus == gpus
    assert layout.fits_world(sizing.num_gpus)
    assert batch == sizing.micro_batch_size * sizing.data_parallel_size * sizing.num_microbatches
    assert sizing.memory.verdict is not MemoryVerdict.OOM
    assert layout.tp <= 8 if gpu == "h100" else layout.tp <= 72
    assert recipe.fields["model.num_query_groups"] % layout.tp == 0 or layout == sizing.shipped


def test_a_recipe_that_leaves_its_shape_open_is_sized_without_an_estimate():
    sizing = size("vanilla_gpt_pretrain_config", 2)
    assert (sizing.verdict, sizing.memory) == (Verdict.AS_SHIPPED, None)
