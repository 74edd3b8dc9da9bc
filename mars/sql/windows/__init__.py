"""Windows of each shape, as a query says them."""
