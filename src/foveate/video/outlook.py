"""What will be encoded of the next pictures: motion says that, before anything is encoded.

Only which parts are renewed depends on the maps as well. So the pictures after a frame are looked at as far as it is
sure what happens to them, and those that are encoded whole are encoded by another thread meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from foveate.core.readonly import Frozen
from foveate.encoders.protocol import DenseFeatures
from foveate.video.flow import Passage, Sight, View
from foveate.video.propagation import Layer, Trust, cover_all, find_trust, propagate
from foveate.video.refresh import Reason, Refresh, find_stale_parts
from foveate.video.temporal import Motion, measure_motion

Begin = Callable[[Sight], "Future[DenseFeatures] | None"]  # begins to encode a picture


@dataclass(frozen=True, eq=False)
class Situation(Frozen):
    """What was encoded, as a picture finds it."""

    view: View  # of the picture
    layers: tuple[Layer, ...]  # as they lie in it; of those that are not encoded yet, no more than where they reach
    shape: tuple[int, int]  # of the cells
    part_age: int  # frames since parts were last encoded again


@dataclass(frozen=True, eq=False)
class Outlook(Frozen):
    """How a picture follows from what was encoded before it."""

    sight: Sight
    found: Situation  # what is there before anything of it is encoded
    trust: Trust
    motion: Motion
    reason: Reason | None  # why it is encoded whole
    sure: bool  # that nothing else of it is encoded
    early: Future[DenseFeatures] | None = None  # its features, where they are being made

    def after(self, rules: Refresh) -> Situation:
        """Once it is encoded, if it is."""
        if self.reason is None:
            return self.found
        whole = cover_all(self.found.shape, self.sight.view)
        return Situation(self.sight.view, (whole,), self.found.shape, rules.pause)


def look_at(before: Situation, sight: Sight, passage: Passage, rules: Refresh) -> Outlook:
    """How a picture follows from the one before it."""
    layers = tuple(propagate(layer, passage.flow, passage.uncovered) for layer in before.layers)
    trust, motion = find_trust(layers, sight.view), measure_motion(passage, before.shape)
    reason = rules.find_reason(layers[0].age, trust.confidence, trust.difference, motion.difference, motion.lost)
    found = Situation(sight.view, layers, before.shape, before.part_age + 1)
    renews = reason is None and rules.parts and found.part_age >= rules.pause
    sure = not (renews and find_stale_parts(trust.confidence))
    return Outlook(sight, found, trust, motion, reason, sure)


def look_further(
    now: Situation, known: Sequence[Outlook], sights: Sequence[Sight], rules: Refresh, begin: Begin
) -> tuple[Outlook, ...]:
    """The outlooks of the next pictures, as far as they are sure; those of the first of them are `known`."""
    outlooks = list(known)
    for sight in sights[len(known) :]:
        if outlooks:
            if not outlooks[-1].sure:
                break
            now = outlooks[-1].after(rules)
        if sight.passage is None or sight.passage.earlier is not now.view:
            break
        one = look_at(now, sight, sight.passage, rules)
        outlooks.append(one if one.reason is None else replace(one, early=begin(sight)))
    return tuple(outlooks)
