"""Model families: what a configuration means for this engine's model, and which tensors make its parameters.

Source: transformers 5.12 configuration and model classes. Evidence: measured (equal logits, tests/e2e). Start reading at `parts`.
"""
