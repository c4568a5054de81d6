"""Which classes a codec knows, and by which tags.

A registry is copied, changed and put in the place of the old one, so that a registration happens whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from greenroom.codec.classes import ClassPlan
from greenroom.codec.plan import Plan, Tagged, shortened
from greenroom.codec.tags import declared, default_tag, same_name


@attrs.frozen
class Claim:
    """A tag's owner. `implied`: by no word of its author, only because it is the class's present name; it gives way."""

    cls: type[Any]
    implied: bool


class Registry:
    def __init__(self) -> None:
        self.claims: dict[str, Claim] = {}
        self.tags: dict[type[Any], str] = {}
        self.class_plans: dict[Any, ClassPlan] = {}  # of attrs classes, and of their parametrised forms
        self.plans: dict[type[Any], Plan] = {}  # of enums and external classes
        self.forms: dict[type[Any], Tagged] = {}

    def copy(self) -> Registry:
        other = Registry()
        other.claims, other.tags = dict(self.claims), dict(self.tags)
        other.class_plans, other.plans, other.forms = dict(self.class_plans), dict(self.plans), dict(self.forms)
        return other

    def claim(self, cls: type[Any], tag: str | None = None) -> list[str]:
        """Give a class its tags; returns what is wrong with them.

        A class that has the module and qualname of a known one takes its place (P24).
        """
        said = declared(cls)
        own = tag or said.tag or default_tag(cls)
        problems = []
        twin = self.claims.get(default_tag(cls))
        if twin is not None and twin.cls is not cls and same_name(twin.cls, cls):
            self._forget(twin.cls)
        for each in dict.fromkeys((own, *said.aliases)):
            problem = self._take(each, cls)
            if problem:
                problems.append(f"{cls.__name__}: {problem}")
        if default_tag(cls) not in self.claims:
            self.claims[default_tag(cls)] = Claim(cls, implied=True)
        self.tags[cls] = own
        return problems

    def also(self, cls: type[Any], tag: str) -> None:
        """Let a known class be found by one more tag, if nothing else has it."""
        self.claims.setdefault(tag, Claim(cls, implied=True))

    def _take(self, tag: str, cls: type[Any]) -> str | None:
        if not tag or tag.startswith("!"):
            return (
                f"the tag {tag!r} cannot be given: a tag is not empty, and those with a '!' first are the codec's own"
            )
        claim = self.claims.get(tag)
        if claim is not None and claim.cls is not cls and not claim.implied:
            if not same_name(claim.cls, cls):
                return (
                    f"the tag {shortened(tag)} belongs to {default_tag(claim.cls)}: "
                    "give one of the two another with @wire(tag=...)"
                )
            self._forget(claim.cls)
        self.claims[tag] = Claim(cls, implied=False)
        return None

    def _forget(self, cls: type[Any]) -> None:
        self.claims = {tag: claim for tag, claim in self.claims.items() if claim.cls is not cls}
        self.class_plans = {key: plan for key, plan in self.class_plans.items() if plan.cls is not cls}
        for table in (self.tags, self.plans, self.forms):
            table.pop(cls, None)

    def known_under(self, base: type[Any]) -> Iterator[type[Any]]:
        """The known classes that derive from a base. Raises TypeError for a Protocol that cannot be tested."""
        return (cls for cls in self.tags if issubclass(cls, base))
