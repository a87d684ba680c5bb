"""Molecules as SMILES: corpora, a tokenizer, and the benchmark MOSES."""
