"""A config becomes parts, runs and a verdict."""
