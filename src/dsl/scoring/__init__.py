"""Scoring text: which estimators, on which blocks, and what they say, with errors."""
