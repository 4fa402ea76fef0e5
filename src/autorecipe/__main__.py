"""`python -m autorecipe` is the command line."""

from autorecipe.cli.main import run

if __name__ == "__main__":
    run()
