"""The page and the charts of `dsl demo`."""
