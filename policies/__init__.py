"""Scheduling policies: one file per scheduler, and the nouns they share."""
