"""Memory and time of a training step, from shape, layout, batch and policy. No GPU, no torch.

Start at `memory.estimate_memory` and `time.estimate_time`; `inputs` makes their arguments from a resolved configuration. What
the real model allocates is measured elsewhere (`autorecipe.engine.trace`, a subprocess); it judges the closed form.
"""
