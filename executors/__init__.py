"""Layer 5 works: plain functions, dictionaries in and out. They know nothing of the rest.

A module of executors is named on the command line, `--executors executors`, or in ORCHESTRATOR_EXECUTORS.
"""

from executors.examples import check_order, quote_shipping, reserve, total

__all__ = ["check_order", "quote_shipping", "reserve", "total"]
