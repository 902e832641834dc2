"""Latency models: what a step costs."""
