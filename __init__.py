"""arcsim: write an LLM-serving scheduling policy once; run it in simulation or on a real paged executor."""

__version__ = "0.1.0"
