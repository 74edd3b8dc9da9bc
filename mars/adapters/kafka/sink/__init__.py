"""Transactions of the reducers: results, references and progress at once."""
