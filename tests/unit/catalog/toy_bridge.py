"""A tiny Megatron Bridge and Megatron-Core, as source trees, with recipes that behave and recipes that do not."""

import textwrap

FILES = {
    "megatron/core/__init__.py": "",
    "megatron/core/package_info.py": 'MAJOR = 0\nMINOR = 1\nPATCH = 0\nPRE_RELEASE = ""\n__version__ = "0.1.0"\n',
    "megatron/bridge/__init__.py": "",
    "megatron/bridge/package_info.py": 'MAJOR = 9\nMINOR = 1\nPATCH = 0\nPRE_RELEASE = "rc1"\n',
    "megatron/bridge/training/__init__.py": "",
    "megatron/bridge/training/config.py": """
        import dataclasses, enum, torch

        class Backend(enum.Enum):
            auto = 1
            flash = 2

        @dataclasses.dataclass
        class Provider:
            num_layers: int = 2
            hidden_size: int = 64
            num_attention_heads: int = 4
            tensor_model_parallel_size: int = 1
            pipeline_model_parallel_size: int = 1
            attention_backend: Backend = Backend.auto
            params_dtype: torch.dtype = torch.float32
            activation_func: object = torch.nn.functional.silu
            window: object = None

        @dataclasses.dataclass(kw_only=True)
        class Train:
            global_batch_size: int
            micro_batch_size: int = 1

        @dataclasses.dataclass(kw_only=True)
        class Lora:
            dim: int = 8
            kind: str = "lora"

        @dataclasses.dataclass(kw_only=True)
        class ConfigContainer:
            model: Provider
            train: Train
            peft: Lora | None = None
            env_vars: dict = dataclasses.field(default_factory=dict)
        """,
    "megatron/bridge/training/mixed_precision.py": """
        import dataclasses, torch

        @dataclasses.dataclass(kw_only=True)
        class MixedPrecisionConfig:
            bf16: bool = False
            params_dtype: torch.dtype = torch.float32
            gather: bool = False

            def finalize(self):
                self.gather = self.bf16

        def toy_mixed():
            return MixedPrecisionConfig(bf16=True, params_dtype=torch.bfloat16)

        MIXED_PRECISION_RECIPES = {"toy_mixed": toy_mixed, "toy-mixed": toy_mixed}
        """,
    "megatron/bridge/recipes/__init__.py": """
        from megatron.bridge.recipes.toy import *
        from megatron.bridge.recipes.mine.own import *
        """,
    "megatron/bridge/recipes/toy/__init__.py": """
        from megatron.bridge.recipes.toy.h100.toy import *
        from megatron.bridge.recipes.toy.h100.toy import toy_pretrain_4gpu_h100_bf16_config as toy_pretrain_config
        """,
    "megatron/bridge/recipes/toy/h100/__init__.py": "",
    "megatron/bridge/recipes/toy/h100/toy.py": """
        import os
        import torch
        from megatron.bridge.training.config import Backend, ConfigContainer, Lora, Provider, Train

        def _common(**model):
            return ConfigContainer(model=Provider(**model), train=Train(global_batch_size=8))

        def toy_pretrain_4gpu_h100_bf16_config():
            print("this must not disturb the events")
            cfg = _common(tensor_model_parallel_size=4, params_dtype=torch.bfloat16, attention_backend=Backend.flash)
            cfg.env_vars["NCCL_DEBUG"] = 1
            cfg.model.window = (3, 0)
            return cfg

        def toy_peft_1gpu_h100_bf16_config(peft_scheme="lora"):
            cfg = _common()
            cfg.peft = Lora(kind=peft_scheme, dim=16 if peft_scheme == "dora" else 8)
            return cfg

        def toy_sft_1gpu_h100_bf16_config():
            cfg = _common()
            cfg.model.hidden_size = 128 if torch.cuda.is_available() else 32
            return cfg

        def toy_raises_pretrain_config():
            raise NotImplementedError("by design")

        def toy_needs_argument_pretrain_config(recipe):
            return _common()

        def toy_loops_pretrain_config():
            while True:
                pass

        def toy_exits_pretrain_config():
            os._exit(7)

        def toy_stubborn_pretrain_config():
            while True:
                try:
                    while True:
                        pass
                except BaseException:
                    pass
        """,
    "megatron/bridge/recipes/mine/__init__.py": "",
    "megatron/bridge/recipes/mine/own.py": """
        import os, pathlib
        from megatron.bridge.recipes.toy import toy_pretrain_config

        def my_toy_pretrain_config():
            cfg = toy_pretrain_config()
            cfg.train.global_batch_size = 64
            cfg.env_vars["HOME_FOLDER"] = pathlib.Path.home() / "data"
            cfg.env_vars["NEMO"] = os.environ.get("NEMO_HOME")
            return cfg
        """,
    "megatron/bridge/recipes/broken.py": "import a_package_that_nobody_has\n",
    "megatron/bridge/perf_recipes/__init__.py": """
        from megatron.bridge.recipes.toy.h100.toy import _common

        def toy_pretrain_4gpu_h100_bf16_config():
            return _common(pipeline_model_parallel_size=2)
        """,
}


def write_tree(root, files=FILES):
    """Write source files below a directory; return the directory."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    return root


def write_checkout(root):
    """Write a checkout: sources below `src`, Megatron-LM as its submodule."""
    write_tree(root / "src", {name: text for name, text in FILES.items() if "/core/" not in name})
    write_tree(root / "3rdparty/Megatron-LM", {name: text for name, text in FILES.items() if "/core/" in name})
    return root
