"""Correcting doubtful text: evidence in, a posterior out."""
