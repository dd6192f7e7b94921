"""Checks whether a record and its history are legal and agree with each other."""
