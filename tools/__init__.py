"""Tools for those who change this library; none of them is part of it."""
