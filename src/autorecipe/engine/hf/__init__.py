"""Hugging Face checkpoints to Megatron-Core's distributed format and back. Run as `python -m autorecipe.engine.hf`."""
