"""Golden traces of real engines, replayed against the policies of the same name."""
