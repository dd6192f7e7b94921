"""What is known about an execution, and the events that change it."""
