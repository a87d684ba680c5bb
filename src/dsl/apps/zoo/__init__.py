"""Other systems on the same blocks, one file each: process, network, objective, bound, sampler."""
