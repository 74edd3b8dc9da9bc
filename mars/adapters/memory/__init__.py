"""A twin in memory of every port, which can be told to fail."""
