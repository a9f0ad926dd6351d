"""The server's part of a round: who takes part, which answers count, how they are defended, optimised and
recorded.
"""
