"""Completes prompts with any checkpoint of this engine. Run as `python -m autorecipe.engine.generation`."""
