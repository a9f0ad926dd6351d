"""Reads run folders and tells what happened. Works without torch."""

from heroes.report.records import Records, read_config, read_records
from heroes.report.summary import Summary

__all__ = ["Records", "Summary", "read_config", "read_records"]
