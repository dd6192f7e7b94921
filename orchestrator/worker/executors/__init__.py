"""Finds executors by name, and describes and checks them."""
