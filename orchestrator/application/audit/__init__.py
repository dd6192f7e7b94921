"""Check that a record and its history are legal."""
