"""The trace as data, and what can be said of it."""
