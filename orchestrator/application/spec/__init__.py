"""Turns a workflow document into a checked spec."""
