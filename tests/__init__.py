"""The tests. Shapes and types are checked at run time, from the first import of the package."""

from tests.shapes import check_some_calls

check_some_calls()
