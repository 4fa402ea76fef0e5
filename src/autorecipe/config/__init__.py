"""Configurations: overrides, resolution, layers of change, and views of a flat configuration as schema types.

Knows no catalog and no terminal: a recipe and a schema are handed in. Start reading at `views`.
"""
