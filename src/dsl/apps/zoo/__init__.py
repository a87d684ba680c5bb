"""Other systems with the same network blocks, one file each, from noise process to sampler."""
