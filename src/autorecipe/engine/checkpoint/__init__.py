"""Sharded, atomic checkpoints on Megatron-Core's distributed format. Start reading at `folder`, then `saver` and `resume`."""
