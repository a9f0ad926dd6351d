"""Workers: what they get (`setup`), what they do (`work`), who watches them (`pool`), what is next (`queue`).

`engine` shares tasks and tests out over them, whether they are processes of a pool or elsewhere.
"""
