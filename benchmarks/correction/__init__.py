"""Doubtful texts whose truth is known, those who correct them, and how well they do."""
