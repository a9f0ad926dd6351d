"""Takes a trained model out of heroes: one file per format, checked after it is written.

`choosing` finds the width that keeps to limits, `writing` writes and checks; a format is a class in a file of
its own, with the name under which `formats` finds it.
"""

from heroes.export.formats import FORMATS
from heroes.export.writing import Exported, Limits, Offer, export

__all__ = ["FORMATS", "Exported", "Limits", "Offer", "export"]
