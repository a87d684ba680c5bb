"""What became of a reading, as JSON, as lines for a terminal and as a page."""
