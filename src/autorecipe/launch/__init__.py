"""From a resolved run to the command, environment and batch script that start it."""
