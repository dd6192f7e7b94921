"""Compare the keys in Redis with the records that they belong to, and repair them."""
