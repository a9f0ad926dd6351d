"""Starts and resumes runs (`running`), and keeps what they leave on disk (`folder`, `checkpoints`)."""
