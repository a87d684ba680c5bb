"""MOSES, the benchmark of molecules: what is measured, and what it is measured against."""
