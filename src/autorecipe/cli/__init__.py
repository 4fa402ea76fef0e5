"""The command line: parses and renders, nothing else. Start reading at `main`."""
