"""Turns a training program into the text that starts it: on this host, on several, or under Slurm.

`training` builds the program's arguments, `local` and `slurm` wrap them, `arithmetic` checks hosts x GPUs against the layout,
`environment` decides which variables travel. Nothing here starts anything: `submission` does. The engine is a path in the text.
"""
