"""The simulated arm."""
