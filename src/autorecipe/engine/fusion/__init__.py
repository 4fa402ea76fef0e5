"""Fused execution on CUDA: the same mathematics in fewer passes over memory.

Everything here is optional and changes rounding only. `apply.fuse_model` swaps eligible parts of a finished model; whatever is
not eligible keeps Megatron-Core's own path. Start reading there.
"""
