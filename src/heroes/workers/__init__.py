"""Workers: what they are given (`setup`), what they do (`work`), who watches them (`pool`), what is next (`queue`), and the engine
that shares tasks and tests out over them (`engine`)."""
