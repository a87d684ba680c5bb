"""Tables and figures of the paper."""

from typing import TYPE_CHECKING

from dsl._util.lazy import exports

if TYPE_CHECKING:
    from dsl.apps.reproduce.paper import paper_rows as paper_rows

__getattr__, __dir__ = exports(__name__, __file__)
