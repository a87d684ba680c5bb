"""Named plug-ins, found through entry points of installed packages.

Families, samplers, corpora, tokenizers, models, judges, verbs and input formats are all found this
way. A plug-in is imported when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import metadata
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """The plug-ins of one entry-point group, by name."""

    def __init__(self, group: str, kind: str, prepare: Callable[[str, Any], T] | None = None):
        """Describe a group.

        Args:
            group: The entry-point group, such as "dsl.samplers".
            kind: The word for a plug-in in errors, such as "sampler".
            prepare: Checks and converts a loaded plug-in, given its name and itself.
        """
        self.group, self.kind = group, kind
        self._prepare = prepare or (lambda _, thing: thing)
        self._loaded: dict[str, T] = {}

    @cached_property
    def _entries(self) -> dict[str, metadata.EntryPoint]:
        found: dict[str, metadata.EntryPoint] = {}
        for entry in metadata.entry_points(group=self.group):
            other = found.setdefault(entry.name, entry)
            if other.value != entry.value:
                raise ValueError(
                    f"two installed packages have a {self.kind} {entry.name!r}: "
                    f"{other.value} and {entry.value}"
                )
        return found

    def __iter__(self) -> Iterator[str]:
        yield from sorted({*self._entries, *self._loaded})

    def __len__(self) -> int:
        return len({*self._entries, *self._loaded})

    def __contains__(self, name: object) -> bool:
        return name in self._loaded or name in self._entries

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            self._loaded[name] = self._load(self._entries[name])
        return self._loaded[name]

    def _load(self, entry: metadata.EntryPoint) -> T:
        try:
            thing = entry.load()
        except (ImportError, AttributeError) as error:
            raise ValueError(
                f"the {self.kind} {entry.name!r} cannot be loaded from {entry.value}: {error}"
            ) from error
        return self._prepare(entry.name, thing)

    def register(self, name: str, thing: Any) -> None:
        """Add a plug-in without an entry point, such as one defined in a notebook."""
        prepared = self._prepare(name, thing)
        if name in self and self[name] is not prepared:
            raise ValueError(f"there is a {self.kind} {name!r} already")
        self._loaded[name] = prepared

    def modules(self) -> list[str]:
        """List the modules of all plug-ins, without importing them."""
        return sorted({entry.module for entry in self._entries.values()})

    def find(self, name: object, where: str) -> T:
        """Return a plug-in by name, with an error that lists all names.

        Args:
            name: The name.
            where: The option or key in errors.
        """
        if not isinstance(name, str) or name not in self:
            shown = repr(name)[:60]
            raise ValueError(f"{where} must be one of {', '.join(self)}; got {shown}")
        return self[name]
