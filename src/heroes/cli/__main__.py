"""`python -m heroes.cli` is the same as `heroes`."""

from heroes.cli import main

main()
