"""Finds settings that suit a strategy: which trials to make, what they came to, and the file of the best."""
