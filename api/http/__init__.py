"""What all paths have in common: who may ask, how much at once, bodies, answers, OpenAPI."""
