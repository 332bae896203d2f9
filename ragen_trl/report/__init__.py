"""A run as one HTML file: `python -m ragen_trl.report RUN [RUN ...]`."""

from ragen_trl.report.page import write_report

__all__ = ["write_report"]
