"""From a question to ranked recipes with reasons."""
