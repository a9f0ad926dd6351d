"""Data: labelled examples in memory, and how they are shared out over the clients."""

from __future__ import annotations

from heroes.data.datasets import DataOptions, Dataset, Progress, data_directory
from heroes.data.digits import load_digits
from heroes.data.downloading import Patience
from heroes.data.examples import DrawnShares, Examples, FederatedData, Shares, WholeShares, from_dataset
from heroes.data.fetching import Listing, get, listed
from heroes.data.loading import DATASETS, load, tested
from heroes.data.partitions import SplitRequest
from heroes.data.sharing import MAY_LEAVE_OUT, PARTITIONS, share_out
from heroes.data.targets import Numbers
from heroes.data.validation import held_out, held_out_of_shares
from heroes.data.verifying import Verdict, verify

__all__ = [
    "DATASETS",
    "MAY_LEAVE_OUT",
    "PARTITIONS",
    "DataOptions",
    "Dataset",
    "DrawnShares",
    "Examples",
    "FederatedData",
    "Listing",
    "Numbers",
    "Patience",
    "Progress",
    "Shares",
    "WholeShares",
    "SplitRequest",
    "Verdict",
    "data_directory",
    "from_dataset",
    "get",
    "held_out",
    "held_out_of_shares",
    "listed",
    "load",
    "load_digits",
    "share_out",
    "tested",
    "verify",
]
