"""Two exact views of the likelihood, every contour, and the audit that compares them."""
