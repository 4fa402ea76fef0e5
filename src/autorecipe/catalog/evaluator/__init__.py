"""Evaluates upstream recipe functions. Runs in a subprocess of its own (`python -m autorecipe.catalog.evaluator`).

It imports a Megatron Bridge tree for real, with stand-ins for what a laptop lacks, calls each recipe function and writes
what it returned as JSON lines. Nothing outside this package imports it; the parent is `autorecipe.catalog.worker`.
Start reading at `__main__`.
"""
