"""Benchmark of text correction: damaged texts, methods, and measures."""
