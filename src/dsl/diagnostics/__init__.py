"""Measurements of a run: what a sampler did, and how sharp the posterior was."""
