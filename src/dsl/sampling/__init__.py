"""Samplers: paths through SNR space that query a denoiser and know nothing else of it."""
