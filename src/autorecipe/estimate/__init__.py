"""Will it fit, and how fast: memory and time estimates, with their errors."""
