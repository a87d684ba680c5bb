"""Baselines on the same backbone, data, optimizer and trainer: what differs is the objective."""
