"""Runs: start one or go on with it (`running`), and what it leaves on disk (`folder`, `checkpoints`)."""
