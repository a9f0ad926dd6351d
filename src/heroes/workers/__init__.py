"""Worker processes: what they are given (`setup`), what they do (`work`), who watches them (`pool`), what is next (`queue`)."""
