"""Low-rank adapters (LoRA, DoRA) on Megatron-Core's parallel linear layers. Start reading at `attach`."""
