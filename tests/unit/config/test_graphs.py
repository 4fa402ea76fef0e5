"""CUDA graph settings after upstream's migration, on a shipped recipe of each release."""

import pytest

from autorecipe.api.resolve import resolve_run
from autorecipe.config.graphs import module_names

DENSE = "llama3_8b_pretrain_config"
TE = "model.cuda_graph_impl=transformer_engine"


def graphs(*overrides, release="0.6.2"):
    run = resolve_run(DENSE, list(overrides), release=release)
    return tuple(run.get(f"model.cuda_graph_{name}", "absent") for name in ("impl", "modules", "scope")), run


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), ("none", [], None)),
        ((TE, "model.cuda_graph_scope=[attn]"), ("transformer_engine", ["CudaGraphModule.attn"], None)),
        (
            (TE, "model.cuda_graph_scope='attn,mlp'"),
            ("transformer_engine", ["CudaGraphModule.attn", "CudaGraphModule.mlp"], None),
        ),
        ((TE, "model.cuda_graph_scope=full"), ("transformer_engine", [], None)),
        (
            (TE, "model.cuda_graph_scope=null", "model.cuda_graph_modules=[mlp]"),
            ("transformer_engine", ["CudaGraphModule.mlp"], None),
        ),
        (("model.cuda_graph_impl=local", "model.cuda_graph_scope=full_iteration"), ("full_iteration", [], None)),
        (
            ("model.cuda_graph_impl=local", "model.cuda_graph_scope=[moe_router]"),
            ("local", ["CudaGraphModule.moe_router", "CudaGraphModule.moe_preprocess"], None),
        ),
        (("model.enable_cuda_graph=true",), ("local", [], None)),
    ],
)
def test_every_spelling_ends_in_one(overrides, expected):
    found, run = graphs(*overrides)
    assert found == expected
    assert not [note for note in run.notes if "GRAPH" in note]
    assert all(not run.origins[f"model.cuda_graph_{name}"].given for name in ("modules", "scope"))


@pytest.mark.parametrize(
    "overrides",
    [
        (TE, "model.cuda_graph_scope=[attn]", "model.cuda_graph_modules=[mlp]"),
        (TE, "model.cuda_graph_scope=[full_iteration]"),
        (TE, "model.cuda_graph_scope=[full,attn]"),
    ],
)
def test_what_upstream_refuses_stays_as_typed(overrides):
    found, _ = graphs(*overrides)
    assert found[0] == "transformer_engine"
    assert found[2] == module_names_typed(overrides)


def module_names_typed(overrides):
    return overrides[1].partition("=")[2].strip("[]").split(",")


def test_modules_without_graphs_are_lost_and_said():
    found, run = graphs("model.cuda_graph_scope=[attn]")
    assert found == ("none", [], None)
    [note] = [note for note in run.notes if note.startswith("TRAP-GRAPH")]
    assert note.endswith("set model.cuda_graph_impl=transformer_engine")


def test_the_oldest_release_has_the_scope_alone():
    assert graphs(release="0.4.2")[0] == ("none", "absent", [])
    found, _ = graphs(TE, "model.cuda_graph_scope=[attn]", release="0.4.2")
    assert found == ("transformer_engine", "absent", ["CudaGraphScope.attn"])


def test_names_are_read_from_every_form():
    assert module_names(None) == module_names("") == module_names("full") == module_names(["full"]) == []
    assert module_names("CudaGraphScope.attn") == module_names(["attn"]) == ["attn"]
    assert module_names(["full", "attn"]) is None
