"""Topics as mappers read them, batches that nobody can unpack among them."""
