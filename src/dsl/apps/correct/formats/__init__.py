"""Input formats of `dsl correct`."""
