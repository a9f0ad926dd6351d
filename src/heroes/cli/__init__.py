"""The command line: one file per family of commands. The only room that prints.

Exit codes: 0 done, 1 failure, 2 the user's mistake, 130 interrupted. What a command was asked for goes to
standard output, progress and errors to standard error.
"""

from heroes.cli.start import main

__all__ = ["main"]
