"""The paths of the API, one module per family; handlers are thin and call a service."""
