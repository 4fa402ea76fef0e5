"""The rules themselves, one module per topic. Each module exports `RULES`."""
