from __future__ import annotations

import argparse
import enum
import io
import json
import pickle
import shlex
import signal
import zipfile
from pathlib import Path

import pytest

from autorecipe.api.resolve import resolve_run
from autorecipe.api.translate import MlmSource, to_bridge
from autorecipe.cli.main import execute
from autorecipe.errors import UsageError
from autorecipe.translate.render import override_texts
from autorecipe.translate.saved_args import load_saved_args


class AttnBackend(enum.Enum):
    unfused = 3


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, ("touch bomb-went-off",)


def write_checkpoint(path: Path, args: object, **extra: object) -> Path:
    stream = io.BytesIO()
    pickle.dump({"args": args, "iteration": 7, **extra}, stream)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("common/data.pkl", stream.getvalue())
        archive.writestr("common/version", "3")
    return path


def settings(source: MlmSource, **kwargs: object) -> dict[str, object]:
    return {item.name: item.value for item in to_bridge(source, **kwargs).settings}  # type: ignore[arg-type]


def test_saved_arguments_are_read_without_torch_and_without_running_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    args = argparse.Namespace(
        num_layers=4,
        hidden_size=64,
        num_attention_heads=4,
        attention_backend=AttnBackend.unfused,
        weight_decay=0.1,
        start_weight_decay=0.1,
        end_weight_decay=0.1,
        weight_decay_incr_style="constant",
        bf16=True,
        world_size=8,
        data_parallel_size=8,
    )
    folder = tmp_path / "iter_0000007"
    folder.mkdir()
    write_checkpoint(folder / "common.pt", args, bomb=Bomb())
    assert load_saved_args(tmp_path)["num_layers"] == 4
    assert not (tmp_path / "bomb-went-off").exists()
    translation = to_bridge(MlmSource(checkpoint=tmp_path))
    found = {item.name: item.value for item in translation.settings}
    assert found["model.num_layers"] == 4
    assert found["model.attention_backend"] == "AttnBackend.unfused"
    assert found["scheduler.start_weight_decay"] == 0.1
    assert translation.world_size == 8
    assert translation.problems == ()


def test_arguments_are_found_where_a_distributed_checkpoint_keeps_them_among_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from torch.distributed import checkpoint as dcp

    monkeypatch.chdir(tmp_path)
    args = argparse.Namespace(
        num_layers=4,
        hidden_size=64,
        num_attention_heads=4,
        attention_backend=AttnBackend.unfused,
        exit_signal=signal.SIGTERM,
        main_grads_dtype=torch.float32,
        params_dtype=torch.bfloat16,
        bf16=True,
        moe_layer_freq=[0, 1, 1, 1],
    )
    folder = tmp_path / "iter_0000007"
    dcp.save(
        {"decoder.weight": torch.ones(8), "common_state/shard_0_1": [{"args": args, "bomb": Bomb()}]},
        checkpoint_id=folder,
        planner=dcp.DefaultSavePlanner(flatten_state_dict=False),
        no_dist=True,
    )
    saved = load_saved_args(tmp_path)
    assert not (tmp_path / "bomb-went-off").exists()
    assert saved == {
        **vars(args),
        "attention_backend": "unfused",
        "exit_signal": "SIGTERM",
        "main_grads_dtype": "fp32",
        "params_dtype": "bf16",
    }
    assert load_saved_args(folder / ".metadata") == saved
    assert settings(MlmSource(checkpoint=tmp_path))["model.attention_backend"] == "AttnBackend.unfused"
    data = folder / "__0_0.distcp"
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(UsageError, match="ends early"):
        load_saved_args(tmp_path)
    dcp.save({"decoder.weight": torch.ones(8)}, checkpoint_id=tmp_path / "iter_0000008", no_dist=True)
    with pytest.raises(UsageError, match="locates no object"):
        load_saved_args(tmp_path)


def test_files_that_are_no_checkpoints_are_refused(tmp_path: Path) -> None:
    plain = tmp_path / "common.pt"
    plain.write_bytes(b"not a zip")
    with pytest.raises(UsageError, match="torch"):
        load_saved_args(plain)
    with pytest.raises(UsageError, match="no such file"):
        load_saved_args(tmp_path / "absent.pt")
    with pytest.raises(UsageError, match="args"):
        load_saved_args(write_checkpoint(tmp_path / "other.pt", None))


@pytest.mark.parametrize(
    "text",
    [
        "MODEL_ARGS:\n  --num-layers: 4\n  --bf16: true\n  --sequence-parallel: false\n  --recompute-modules: core_attn mlp\n",
        "num-layers: 4\nbf16: true\nrecompute-modules: [core_attn, mlp]\n",
        "language_model:\n  num_layers: 4\n  recompute_modules: [core_attn, mlp]\nbf16: true\n",
    ],
)
def test_yaml_in_its_usual_forms(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(text)
    found = settings(MlmSource(yaml=path))
    assert found["model.num_layers"] == 4
    assert found["mixed_precision"] == "bf16_mixed"
    assert found["model.recompute_modules"] == ["core_attn", "mlp"]


def test_a_section_of_a_recipe_file_is_read_and_what_is_beside_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(
        "DEPENDENCIES:\n  image: none\nENV_VARS:\n  A: '1'\nARGS:\n  num_layers: 4\n  load: ${CKPT}/a\n  finetune: false\n"
        "  moe_layer_freq: ([0]*1+[1]*3)\n  num_experts: 4\n  activation_func: swiglu\n"
    )
    translation = to_bridge(MlmSource(yaml=path, variables={"CKPT": "/ckpt"}))
    assert [outcome.name for outcome in translation.lost] == ["--activation-func"]  # a key is never the beginning of another
    found = {item.name: item.value for item in translation.settings}
    assert found["checkpoint.load"] == "/ckpt/a"
    assert found["model.moe_layer_freq"] == [0, 1, 1, 1]
    notes = "\n".join(translation.notes)
    assert "left out: DEPENDENCIES" in notes
    assert "false, so not given: finetune" in notes
    assert [outcome.name for outcome in to_bridge(MlmSource(yaml=path)).lost] == ["--load", "--activation-func"]


def test_an_emitted_recipe_of_ones_own_is_what_the_overrides_make(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--bf16", "--grad-reduce-in-bf16", "--num-layers", "4", "--swiglu", "--recompute-activations"]
    recipe = "deepseek_v2_lite_pretrain_config"
    translation = to_bridge(MlmSource(words=words), recipe=recipe)
    assert isinstance(next(item.value for item in translation.settings if item.name == "mixed_precision"), dict)
    execute(["translate", "to-bridge", "--recipe", recipe, "--emit", "own-recipe", "--name", "mine", "--", *words])
    Path("own.py").write_text(capsys.readouterr().out)
    own = resolve_run("own.py:mine", ())
    assert own.values == resolve_run(recipe, override_texts(translation)).values


def test_emitted_arguments_parse_again(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--num-layers", "4", "--bf16", "--moe-layer-freq", "([0]*1+[1]*3)", "--num-experts", "4", "--seed", "3"]
    execute(["translate", "to-bridge", "--emit", "args", "--", *words])
    again = shlex.split(capsys.readouterr().out.replace("\\\n", " "))
    assert settings(MlmSource(words=again)) == settings(MlmSource(words=words))


def test_a_script_is_read_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("ARGS=(\n --num-layers 4\n --lr $LR\n)\npython pretrain_gpt.py ${ARGS[@]}\n")
    translation = to_bridge(MlmSource(script=path))
    assert [(outcome.name, outcome.origin) for outcome in translation.outcomes] == [
        ("--num-layers", "run.sh:2"),
        ("--lr", "run.sh:3"),
    ]
    assert [outcome.name for outcome in translation.lost] == ["--lr"]
    assert "--var LR=VALUE" in translation.lost[0].note
    assert to_bridge(MlmSource(script=path, variables={"LR": "1e-4"})).lost == ()


def test_exit_status_and_every_form_of_output(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--num-layers", "4", "--bf16", "--enable-mhc-connections"]
    assert execute(["translate", "to-bridge", "--", *words]) == 1
    captured = capsys.readouterr()
    assert "model.num_layers=4" in captured.out.splitlines()
    assert "LOST: --enable-mhc-connections" in captured.out
    assert "error[unmapped]" in captured.err
    assert execute(["translate", "to-bridge", "--allow-unmapped", "--", *words]) == 0
    capsys.readouterr()
    for form, sign in (
        ("recipe", "def translated_pretrain_config"),
        ("yaml", "num_layers: 4"),
        ("args", "--num-layers 4"),
        ("table", "unmapped"),
    ):
        execute(["translate", "to-bridge", "--emit", form, "--", *words])
        captured = capsys.readouterr()
        assert sign in captured.out
        assert all(word in captured.out + captured.err for word in words if word.startswith("--")), form
    execute(["translate", "to-bridge", "--format", "json", "--", *words])
    data = json.loads(capsys.readouterr().out)
    assert [outcome["name"] for outcome in data["lost"]] == ["--enable-mhc-connections"]
    assert execute(["translate", "to-bridge", "--script", "absent.sh"]) == 2


def test_a_file_in_place_of_options_is_read_and_nothing_at_all_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.sh").write_text('python pretrain_gpt.py --num-layers 4 --lr $1 "$X"\n')
    Path("model.yaml").write_text("MODEL_ARGS:\n  --num-layers: 4\n")
    for words in (["run.sh", "1e-4", "--var", "X="], ["bash", "run.sh", "1e-4", "--var", "X="], ["model.yaml"]):
        assert execute(["translate", "to-bridge", *words]) in (0, 1), words
        assert "model.num_layers=4" in capsys.readouterr().out
    for words in ([], ["absent.sh"], ["pretrain_gpt.py"], ["model.yaml", "--", "--lr", "1"], ["--var", "X=1", "--", "--lr", "1"]):
        assert execute(["translate", "to-bridge", *words]) == 2, words
        assert not capsys.readouterr().out


def test_arguments_that_a_script_does_not_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("python pretrain_gpt.py --num-layers 4\n")
    translation = to_bridge(MlmSource(script=path, script_arguments=["--lr", "1"]))
    assert any("--lr 1 changes nothing" in note for note in translation.notes)


def test_an_emitted_recipe_is_valid_python(capsys: pytest.CaptureFixture[str]) -> None:
    execute(
        ["translate", "to-bridge", "--emit", "recipe", "--", "--swiglu", "--bf16", "--grad-reduce-in-bf16", "--use-flash-attn"]
    )
    text = capsys.readouterr().out
    compile(text, "recipe.py", "exec")
    assert "cfg.model.activation_func = F.silu" in text
    assert "cfg.model.attention_backend = AttnBackend.flash" in text
    assert "MixedPrecisionConfig(bf16=True" in text
