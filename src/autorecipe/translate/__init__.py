"""Megatron-LM arguments to Bridge configuration and back, with nothing lost in silence."""
