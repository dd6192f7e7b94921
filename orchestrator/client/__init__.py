"""The client: what an application calls to start workflows, to steer and to follow them."""

from orchestrator.client.client import Client, ExecutionFailed, StillRunning
from orchestrator.client.controls import Answered, Bulk, ControlRefused
from orchestrator.client.replies import Forgotten, NoAnswer
from orchestrator.client.starts import Started, StartOptions
from orchestrator.redis_rq.queries.listing import Filter, Page, Summary

__all__ = [
    "Answered",
    "Bulk",
    "Client",
    "ControlRefused",
    "ExecutionFailed",
    "Filter",
    "Forgotten",
    "NoAnswer",
    "Page",
    "StartOptions",
    "Started",
    "StillRunning",
    "Summary",
]
