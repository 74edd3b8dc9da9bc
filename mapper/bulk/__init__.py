"""The bulk process: has Spark map histories, tasks that fell behind, and queries."""
