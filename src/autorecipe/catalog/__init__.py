"""Upstream releases as data: recipes, configuration schema, model cards, Megatron-LM options, GPUs."""
