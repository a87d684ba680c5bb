"""The command line: one file per verb, each of which loads, does and saves."""
