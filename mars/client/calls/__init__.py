"""The calls of the client, by what they are about."""
