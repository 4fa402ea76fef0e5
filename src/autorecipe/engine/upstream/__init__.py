"""Upstream's own training programs, started unmodified: Megatron-LM's `pretrain_gpt.py`, Megatron Bridge's `run_recipe.py`.

    python -m torch.distributed.run --nproc_per_node=2 -m autorecipe.engine.upstream mlm PLACE --num-layers 2 ...
    python -m torch.distributed.run --nproc_per_node=1 -m autorecipe.engine.upstream bridge PLACE --recipe NAME ...

PLACE is a checkout, the script in it, or a folder with upstream's packages and no scripts (an unpacked wheel, or the
`site-packages` of an installation; `-` is the one of this interpreter). Without scripts, `megatron_lm` and `megatron_bridge`
here call the training functions that upstream's scripts call. With CUDA nothing else is done. Without, `host` makes upstream
run on the CPU: the stand-in for CUDA, Gloo groups, this project's modules where core lacks Transformer Engine, and marks for
packages that are only imported. No file of upstream is changed.
"""
