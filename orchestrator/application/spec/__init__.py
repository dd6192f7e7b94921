"""From a document to a checked spec."""
