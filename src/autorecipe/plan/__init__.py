"""Enumerate layouts, drop the illegal and those that do not fit, rank the rest."""
