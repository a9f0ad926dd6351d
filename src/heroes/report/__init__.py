"""Reads run folders and reports on them: summaries, comparisons, figures, a page. Works without torch."""

from heroes.report.compare import compare, reference_among, refuse_targets
from heroes.report.comparison import Comparison, Measure
from heroes.report.curve import score_curve
from heroes.report.files import write_whole
from heroes.report.measures import Ratios, Spread
from heroes.report.metrics import Metric
from heroes.report.page import comparison_pictures, run_pictures, write_page
from heroes.report.records import Records, read_config, read_records
from heroes.report.runs import Group, RunData, group_runs, load_run, load_runs
from heroes.report.style import save_figure
from heroes.report.summary import Summary
from heroes.report.tables import Table

__all__ = [
    "Comparison",
    "Group",
    "Measure",
    "Metric",
    "Ratios",
    "Records",
    "RunData",
    "Spread",
    "Summary",
    "Table",
    "compare",
    "comparison_pictures",
    "group_runs",
    "load_run",
    "load_runs",
    "read_config",
    "read_records",
    "reference_among",
    "refuse_targets",
    "run_pictures",
    "save_figure",
    "score_curve",
    "write_page",
    "write_whole",
]
