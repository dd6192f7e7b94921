"""Find executors and describe them."""
