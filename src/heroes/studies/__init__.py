"""Studies: lists of runs that answer a question, made once, kept as small files, told in tables."""
