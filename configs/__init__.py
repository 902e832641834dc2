"""Bundled experiments."""
