"""Files that commands write for users to change: real code, checked like the rest."""
