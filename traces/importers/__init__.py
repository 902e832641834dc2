"""Other engines' logs and load generators' results, read into runs."""
