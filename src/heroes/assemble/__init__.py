"""Turns names into objects: the only room that knows every other, and the last to see a configuration.

`whole` puts a federation together from the user's own parts (`own`), the simulated world (`world`), what
clients need (`clients`) and what the server needs (`server`).
"""

from heroes.assemble.clients import at_clients, at_node, settled
from heroes.assemble.elsewhere import received
from heroes.assemble.own import NOTHING, Own, OwnData
from heroes.assemble.own_file import OwnParts, with_file
from heroes.assemble.server import stop_rule
from heroes.assemble.serving import for_serving, gathering_again, trial_inputs
from heroes.assemble.whole import assembled, entered, followed

__all__ = [
    "NOTHING",
    "Own",
    "OwnData",
    "OwnParts",
    "assembled",
    "at_clients",
    "at_node",
    "entered",
    "followed",
    "received",
    "for_serving",
    "gathering_again",
    "settled",
    "stop_rule",
    "trial_inputs",
    "with_file",
]
