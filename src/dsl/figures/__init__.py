"""Figures, drawn from results and never from a model; each needs the `figures` extra."""
