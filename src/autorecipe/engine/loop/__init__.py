"""The training loop's parts: settings, schedule, log lines, metrics, evaluation, signals. Start reading at `settings`."""
