"""Families of models on the same blocks, data, optimizer and trainer; each describes itself."""
