"""Experiments: measurements that a reader of the docs can repeat."""
