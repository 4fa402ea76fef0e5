"""Trains a resolved configuration on Megatron-Core. The only package that imports torch or megatron.core."""
