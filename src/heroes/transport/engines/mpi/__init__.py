"""Clients on the ranks of an MPI job: rank 0 is the server, every other rank trains for it.

Messages are the frames of `heroes.transport.wire`, each in one buffer, carried by `post`; nothing is pickled.
Rank 0 (`leader`) tells the others to begin, with the configuration as text; each (`follower`) sets itself up,
says that it is ready, answers what it is sent, and leaves when it is told to stop. mpi4py is imported where
it is first needed.
"""

from heroes.transport.engines.mpi.follower import Served, serve
from heroes.transport.engines.mpi.leader import MpiEngine, leading, opened
from heroes.transport.engines.mpi.world import rank

__all__ = ["MpiEngine", "Served", "leading", "opened", "rank", "serve"]
