"""Text on its way to tokens and back."""
