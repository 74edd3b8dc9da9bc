"""What the paths do, on ports only: testable without a network."""
