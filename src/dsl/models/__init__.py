"""The network: codebook, converter and backbone make one denoiser."""
