"""The server's part of a round: who takes part, which answers count, defences, optimisers, records."""
