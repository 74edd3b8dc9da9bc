"""Expressions of a query: names, constants, operators, functions, and those over groups."""
