"""This project's own layers for Megatron-Core's layer specification, for machines without Transformer Engine."""
