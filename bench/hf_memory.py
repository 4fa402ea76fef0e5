"""Memory of checkpoint conversions: the peak of each against the size of its model, at two depths.

    python bench/hf_memory.py [--layers 4 8] [--folder DIR]

Makes a Llama of random bfloat16 weights in several files, imports it and exports it again, each in a process of its own, and
prints the peak resident memory that the work adds to a process which has only imported the same packages. It must not grow
with the depth. Evidence: measured, on the machine that runs it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

WIDTH, FFN, VOCABULARY = 2048, 8192, 32000
SHARD = 128 * 1024**2
PROGRAM = """
import resource, sys
from pathlib import Path
from autorecipe.engine.hf import convert, shards
from autorecipe.engine.checkpoint import streaming
kind, folder = sys.argv[1], Path(sys.argv[2])
if kind == "import":
    shards.ShardReader.__init__.__kwdefaults__["window_bytes"] = {shard}
    convert.import_weights(folder / "hf", folder / "mcore")
elif kind == "export":
    convert.export_weights(folder / "mcore", folder / "hf", folder / "back", shard_bytes={shard})
else:
    from autorecipe.engine import compat
    compat.prepare()
    import megatron.core.models.gpt
print("PEAK", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def make(folder, layers):
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    sizes = {"q_proj": (WIDTH, WIDTH), "k_proj": (WIDTH // 4, WIDTH), "v_proj": (WIDTH // 4, WIDTH), "o_proj": (WIDTH, WIDTH)}
    total = 0
    for layer in range(-1, layers):
        if layer < 0:
            tensors = {"model.embed_tokens.weight": (VOCABULARY, WIDTH), "model.norm.weight": (WIDTH,)}
        else:
            head = f"model.layers.{layer}"
            tensors = {f"{head}.self_attn.{name}.weight": shape for name, shape in sizes.items()}
            tensors |= {f"{head}.mlp.{name}_proj.weight": (FFN, WIDTH) for name in ("gate", "up")}
            tensors[f"{head}.mlp.down_proj.weight"] = (WIDTH, FFN)
            tensors |= {f"{head}.{name}.weight": (WIDTH,) for name in ("input_layernorm", "post_attention_layernorm")}
        made = {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in tensors.items()}
        total += sum(tensor.numel() * 2 for tensor in made.values())
        save_file(made, str(folder / f"part{layer + 1}.safetensors"))
    config = {
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": FFN,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "num_hidden_layers": layers,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return total


def peak(kind, folder):
    program = PROGRAM.replace("{shard}", str(SHARD))
    done = subprocess.run([sys.executable, "-c", program, kind, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout.split("PEAK")[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--folder", type=Path, default=None, help="where to put the models; they are removed")
    given = parser.parse_args()
    mib = 1024**2
    print("layers  model MiB  import adds MiB (of model)  export adds MiB (of model)")
    for layers in given.layers:
        with tempfile.TemporaryDirectory(dir=given.folder) as text:
            folder = Path(text)
            size = make(folder / "hf", layers)
            base = peak("nothing", folder)
            read, written = peak("import", folder) - base, peak("export", folder) - base
            adds = (f"{amount / mib:>16.0f} {amount / size:>11.2f}" for amount in (read, written))
            print(f"{layers:>6} {size / mib:>10.0f}", *adds)


if __name__ == "__main__":
    main()
