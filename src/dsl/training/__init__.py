"""Training: the mixed-SNR objective, and a loop that survives being stopped."""
