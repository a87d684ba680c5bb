"""Neighbours of the library: they use the names that its packages export."""
