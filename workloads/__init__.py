"""Requests and when they arrive."""
