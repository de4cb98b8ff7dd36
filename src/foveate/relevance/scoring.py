"""Text vectors become a calibrated map over a texture's cells, with a confidence.

For a phrase with unit vector q and a cell with unit feature x (compressed, see texture/basis.py):

    score      s = q.x                                              linear, so it may be interpolated
    negatives  r = log(mean over j of exp(t s_j)) / t               over nouns that are not like q
    logits     m = s - contrast r
    odds       o = sigmoid(slope m + offset)
    relevance  p = o where there are negatives, else (o - f) / (1 - f), at least 0; of several phrases the highest

f is sigmoid(offset): without negatives a score of 0 is no evidence, and its relevance is 0. The five numbers are the
encoder's `Calibration`. Transparent pixels have no relevance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.arrays import largest
from foveate.core.checks import check_array
from foveate.core.grid import Floats, check_grid, resize_map
from foveate.core.readonly import ReadOnly, from_attributes
from foveate.encoders.protocol import Calibration
from foveate.language.cues import find_cues
from foveate.language.negatives import Negatives
from foveate.language.query import Query, asks_beside_it
from foveate.relevance.composition import Composed, compose
from foveate.relevance.confidence import FOLLOWED, limit, mean_of, peak, peak_cells, with_odds
from foveate.relevance.evidence import Shown, evidence_of
from foveate.relevance.options import DEFAULTS, CheckedScoring
from foveate.relevance.steps import asks_of, combine, segment_means, smooth
from foveate.relevance.value import Asks, Relevance
from foveate.relevance.written import asks_for_words, doubt_writing, page_of, read_map
from foveate.texture.texture import Texture

CHUNK = 128  # nouns scored at a time
SUREST = 0.999  # what is so sure is not looked for by its kinds
NO_WEIGHTS: ReadOnly[str, float] = ReadOnly({})
OF_THE_QUESTION = {"participation", "segment"}  # planes that add nothing to the phrases' maps


def score_query(
    texture: Texture,
    query: Query,
    calibration: Calibration,
    negatives: Negatives | None = None,
    options: CheckedScoring = DEFAULTS,
) -> Relevance:
    """The relevance of one prepared question. `negatives` is needed where the calibration's contrast is above 0."""
    if not query.phrases:
        return score_nothing(texture, query.text, options)
    if query.plain and options is DEFAULTS and _of_texture(texture)[1]:
        return _score_plain(texture, query, calibration, negatives)
    scored = _score_phrases(texture, query, calibration, negatives)
    asked, half = query.asked, query.known_half
    best, logits = _highest(scored.maps, asked), _highest(scored.logits, asked)
    if half:
        best = np.max([scored.planes[noun].ravel() if noun else scored.maps[i] for i, noun in half.items()], 0)
        logits = logits_behind(best, calibration)
    shape = texture.grid.shape
    reasons = {"participation": best.reshape(shape), **scored.planes}
    parts = {phrase: part.reshape(shape) for phrase, part in zip(query.phrases, scored.maps, strict=True)}
    confidences = dict(zip(query.phrases, scored.confidences, strict=True))
    union = max(scored.confidences[i] for i in asked)
    confidence = join_confidences(query.asked_groups, confidences) if query.together else union
    reading = read_map(texture, query.text, parts, confidence) if options.reading else None
    weights = dict(scored.weights)
    final = combine(texture, query.cues, reasons, weights, options, reading, query.written_on)
    if scored.valid is not None and len(reasons) > 1:  # what entered knows nothing of transparency; the map does
        final = np.minimum(final, scored.valid.reshape(shape))
    entered = reasons.keys() - OF_THE_QUESTION - scored.planes.keys()
    if reading is not None:
        confidence = reading.confidence if reading.written else max(confidence, reading.confidence)
    if query.written_on and not (reading and reading.words):
        confidence = doubt_writing(confidence, texture, reasons["participation"], options.reading)
    was_read = reading is not None and bool(reading.written or reading.words)
    return from_attributes(
        Relevance,
        query=query.text,
        map=final,
        logits=logits.reshape(shape),
        confidence=confidence,
        parts=ReadOnly(parts),
        reasons=ReadOnly(reasons),
        confidences=ReadOnly({**scored.inside, **confidences}),
        ignored=query.ignored,
        unknown=query.unread if reading is not None and was_read and reading.placed else query.unknown,
        looked_for=query.looked_for if reading is None or not was_read else reading.looked_for(query),
        peak=peak(final.ravel()) if entered or half else union if query.together or query.written_on else 0.0,
        words=() if reading is None else reading.words,
        weights=ReadOnly(weights),
        preset=options.preset,
        asks=asks_of(query.asks, reasons, weights, was_read),
        **_fields_of(texture),
    )


def _score_plain(texture: Texture, query: Query, calibration: Calibration, negatives: Negatives | None) -> Relevance:
    """In half the time, where only segments enter."""
    phrase, shape = query.phrases[0], texture.grid.shape
    logits, found, confidence = _see(texture, query, phrase, query.vectors, calibration, negatives)
    own, confidence = found.reshape(shape), limit(confidence, query.promises.get(phrase, 1.0))
    means = segment_means(texture, own)
    return from_attributes(
        Relevance,
        query=query.text,
        map=smooth(own, means, DEFAULTS.smoothing),
        logits=logits.reshape(shape),
        confidence=confidence,
        parts=ReadOnly({phrase: own}),
        reasons=ReadOnly({"participation": own, "segment": means}),
        confidences=ReadOnly({phrase: confidence}),
        ignored=query.ignored,
        unknown=query.unknown,
        looked_for=query.looked_for,
        weights=NO_WEIGHTS,
        asks=query.asks,
        **_fields_of(texture),
    )


def empty_relevance(texture: Texture, text: str) -> Relevance:
    nothing = np.zeros(texture.grid.shape, np.float32)
    reasons = ReadOnly({"participation": nothing})
    return Relevance(text, nothing, nothing, 0.0, ReadOnly({}), reasons, **_fields_of(texture))


def score_nothing(texture: Texture, text: str, options: CheckedScoring = DEFAULTS) -> Relevance:
    """The relevance of a question that names no thing: of what was read ("who is it from?"), writing, a prior."""
    nothing = replace(empty_relevance(texture, text), preset=options.preset)
    reading = read_map(texture, text, {}) if options.reading and asks_for_words(text) else None
    reasons, weights = dict(nothing.reasons), dict[str, float]()
    final = combine(texture, find_cues(text, ()) if reading is None else (), reasons, weights, options, reading)
    if nothing.valid is not None:
        final = np.minimum(final, nothing.valid)
    entered = reasons.keys() - OF_THE_QUESTION
    asks: Asks = "beside" if asks_beside_it(text) else "thing"
    return replace(
        nothing,
        map=final,
        confidence=0.0 if reading is None else reading.confidence,
        reasons=ReadOnly(reasons),
        peak=peak(final.ravel()) if entered else 0.0,
        words=() if reading is None else reading.words,
        weights=ReadOnly(weights),
        asks=asks_of(asks if final.any() else "everything", (), weights, reading is not None),
    )


def given_relevance(texture: Texture, text: str, given: Relevance | ArrayLike) -> Relevance:
    """A relevance for a question from a caller's Relevance or map [h, w] in [0, 1] of any grid. Raises OptionError."""
    if isinstance(given, Relevance):
        check_grid(given.grid, texture.grid)
        return given
    fix = "pass a Relevance, or a map [h, w] over the whole image, scaled to [0, 1]"
    plane = check_array("relevance", given, (None, None), low=0, high=1, fix=fix)
    nothing = empty_relevance(texture, text)
    found = np.clip(resize_map(plane, texture.grid.shape), 0, 1)
    if nothing.valid is not None:
        found = np.minimum(found, nothing.valid)
    found.setflags(write=False)
    return replace(
        nothing, map=found, reasons=ReadOnly({"given": found}), confidence=peak(found.ravel()), peak=float(found.any())
    )


def _of_texture(texture: Texture) -> tuple[dict[str, Any], bool]:
    """What all its relevances have; and whether only segments enter the map of a plain question."""

    def make() -> tuple[dict[str, Any], bool]:
        shape, valid = texture.grid.shape, _validity(texture)
        plain = valid is None and texture.has("cluster_id") and not texture.words and page_of(texture)[1] is None
        return {
            "grid": texture.grid,
            "saliency": texture.channel("saliency", warn=False),
            "valid": None if valid is None else valid.reshape(shape),
            "features": texture.coordinates().reshape(*shape, -1),
        }, plain

    return texture.derive("of every relevance", make)


def _fields_of(texture: Texture) -> dict[str, Any]:
    return _of_texture(texture)[0] | {"texture": texture}


def join_confidences(groups: Sequence[Sequence[str]], confidences: Mapping[str, float]) -> float:
    """The confidence of a question: the lowest of each group that is asked for together, the highest of the groups."""
    return max(min(confidences[phrase] for phrase in group) for group in groups)


def peak_confidences(
    texture: Texture, query: Query, calibration: Calibration, negatives: Negatives | None = None
) -> Floats:
    """The confidence of each phrase that is asked for, float32 [n], without the map."""
    made = compose_phrases(texture, query, calibration, negatives)
    known = {
        i: _see(texture, query, phrase, query.vectors[i : i + 1], calibration, negatives)[2]
        for i, phrase in enumerate(query.phrases)
        if i not in made
    }
    return np.array(join_composed(query, made, known)[0], np.float32)[list(query.asked)]


def score_maps(
    texture: Texture, queries: Sequence[Query], calibration: Calibration, negatives: Negatives | None = None
) -> Floats:
    """The map p of each question, without segments and cues: float32 [q, h, w], from one product."""
    every = Query("", tuple(p for q in queries for p in q.phrases), np.concatenate([q.vectors for q in queries]))
    maps = _score_phrases(texture, every, calibration, negatives).maps
    if len(maps) > len(queries):  # np.maximum.reduceat would take ten times as long
        ends = np.cumsum([len(query.phrases) for query in queries])[:-1]
        maps = np.stack([part.max(0) for part in np.split(maps, ends)])
    for row, query in zip(maps, queries, strict=True):
        if query.words or query.kinds:
            row[:] = _score_phrases(texture, query, calibration, negatives).maps[list(query.asked)].max(0)
    return maps.reshape(-1, *texture.grid.shape)


def relevance_of(logits: Floats, calibration: Calibration) -> Floats:
    """p of the module's formula for each logit m, float32."""
    maps, floor = np.float32(-calibration.slope) * logits, floor_of(calibration)
    most, least = np.float32(1 / (1 - floor)), np.float32(floor / (1 - floor))
    maps -= np.float32(calibration.offset)
    np.exp(maps, out=maps)
    maps += np.float32(1)
    np.divide(most, maps, out=maps)
    if floor:
        maps -= least
        np.maximum(maps, np.zeros(maps.shape, np.float32), out=maps)  # NumPy takes three times as long with a number
        if most - least > 1:  # rounding
            np.minimum(maps, 1, out=maps)
    return maps


def _likely(logit: float, calibration: Calibration) -> float:
    """`relevance_of` one logit, in a tenth of the time."""
    odds = 1 / (1 + math.exp(min(700.0, -calibration.slope * logit - calibration.offset)))
    floor = floor_of(calibration)
    return max(0.0, (odds - floor) / (1 - floor))


def logits_behind(maps: Floats, calibration: Calibration) -> Floats:
    """The logits m whose relevance a composed map is."""
    floor = floor_of(calibration)
    likely = np.float32(1 - floor - 1e-6) * maps
    likely += np.float32(floor)
    if floor < 1e-6:
        likely = np.maximum(likely, np.float32(1e-6))
    odds = 1 - likely
    np.log(np.divide(likely, odds, out=odds), out=odds)
    odds -= np.float32(calibration.offset)
    odds /= np.float32(calibration.slope)
    return odds


def floor_of(calibration: Calibration) -> float:
    """f of the module's formula: what the sigmoid gives to a score of 0, where that is no evidence."""
    return 0.0 if calibration.contrast > 0 else 1 / (1 + math.exp(-calibration.offset))


class _Scored(NamedTuple):
    """Logits and maps of each phrase, float32 [phrases, cells], and what composed phrases are made of."""

    logits: Floats
    maps: Floats
    valid: Floats | None
    confidences: list[float]
    planes: dict[str, Floats]
    inside: dict[str, float]
    weights: dict[str, float]


def _highest(rows: Floats, asked: tuple[int, ...]) -> Floats:
    return rows[asked[0]] if len(asked) == 1 else rows[list(asked)].max(0)


def _score_phrases(texture: Texture, query: Query, calibration: Calibration, negatives: Negatives | None) -> _Scored:
    made = compose_phrases(texture, query, calibration, negatives)
    plain = [i for i in range(len(query.phrases)) if i not in made]
    if len(plain) == len(query.phrases):
        logits, maps = _score_vectors(texture, query.vectors, calibration, negatives)
    else:
        logits, maps = np.empty((2, len(query.phrases), texture.grid.count), np.float32)
        if plain:
            logits[plain], maps[plain] = _score_vectors(texture, query.vectors[plain], calibration, negatives)
    for i, composed in made.items():
        maps[i] = composed.map.ravel()
        logits[i] = logits_behind(maps[i], calibration)
    known = {i: with_odds(peak(maps[i]), query.surer.get(query.phrases[i], 0.0)) for i in plain}
    for i in plain:
        if (phrase := query.phrases[i]) in query.kinds:
            seen = _see(texture, query, phrase, query.vectors[i : i + 1], calibration, negatives)
            logits[i], maps[i], known[i] = seen
    return _Scored(logits, maps, _validity(texture), *join_composed(query, made, known))


def join_composed(
    query: Query, made: Mapping[int, Composed], known: Mapping[int, float]
) -> tuple[list[float], dict[str, Floats], dict[str, float], dict[str, float]]:
    """-> the confidences of the phrases; by name planes, confidences and weights that entered composed ones.

    `known`: the confidences of the other phrases, by their numbers.
    """
    planes: dict[str, Floats] = {}
    inside: dict[str, float] = {}
    weights: dict[str, float] = {}
    for each in made.values():
        planes |= each.planes
        inside |= {word: limit(c, query.promises.get(word, 1.0)) for word, c in each.confidences.items()}
        weights |= each.weights
    confidences = [
        limit(made[i].confidence if i in made else known[i], query.promises.get(phrase, 1.0))
        for i, phrase in enumerate(query.phrases)
    ]
    return confidences, planes, inside, weights


def _see(
    texture: Texture, query: Query, word: str, vector: Floats, calibration: Calibration, negatives: Negatives | None
) -> tuple[Floats, Floats, float]:
    """Logits and map [cells] of one word, and its confidence: that of the surest of it and its kinds.

    Where the word's own evidence is too little to follow, the map is that of the surest.
    """
    logits = _logits_of(texture, vector, calibration, negatives)[0]
    found = _maps_of(texture, logits, calibration)
    own = peak(found)  # without the odds: they make a thing surer, its map no brighter
    sure, shown, kinds = with_odds(own, query.surer.get(word, 0.0)), logits, query.kinds.get(word, ())
    if not kinds or sure >= SUREST:
        return logits, found, sure
    every = kinds[0][0] if len(kinds) == 1 else np.concatenate([kind for kind, _ in kinds])
    for seen, (_, odds) in zip(_logits_of(texture, every, calibration, negatives), kinds, strict=True):
        highest = _likely(float(seen.max()), calibration)
        if sure >= SUREST or with_odds(highest, odds) <= sure:  # nor can its peak be
            continue
        if (surer := with_odds(_peak_of(texture, seen, calibration), odds)) > sure:
            sure, shown = surer, seen if own < FOLLOWED else logits
    return shown, found if shown is logits else _maps_of(texture, shown, calibration), sure


def _peak_of(texture: Texture, logits: Floats, calibration: Calibration) -> float:
    """The peak of the map of some logits [cells], mostly without making it: p rises with them."""
    if _validity(texture) is not None:
        return peak(_maps_of(texture, logits, calibration))
    return mean_of(relevance_of(largest(logits, peak_cells(len(logits))), calibration))


def compose_phrases(
    texture: Texture, query: Query, calibration: Calibration, negatives: Negatives | None
) -> dict[int, Composed]:
    """The composed phrases of a question, by their numbers."""
    if query.word_vectors is None:
        return {}
    vectors, valid = query.word_vectors, _validity(texture)

    def likeliest(*words: str) -> Floats:
        asked = [query.words.index(word) for word in words]
        logits = _logits_of(texture, vectors[asked], calibration, negatives)
        found = relevance_of(logits[0] if len(words) == 1 else logits.max(0), calibration)
        return (found if valid is None else found * valid).reshape(texture.grid.shape)

    seen = {
        word: _see(texture, query, word, vectors[[query.words.index(word)]], calibration, negatives)
        for word in query.kinds
        if word in query.words
    }

    def known(word: str, found: Floats) -> float:
        return seen[word][2] if word in seen else with_odds(peak(found), query.surer.get(word, 0.0))

    def look(*words: str) -> Floats:  # many questions share what may be held, worn or sat on
        if len(words) == 1:
            return seen[words[0]][1].reshape(texture.grid.shape) if words[0] in seen else likeliest(*words)
        return texture.derive(("likeliest", words, calibration, negatives), lambda: likeliest(*words))

    def evidence(word: str) -> Shown | None:
        return evidence_of(texture, word)

    composed = [(i, phrase) for i, phrase in enumerate(query.structure) if query.composed(i)]
    made = {i: compose(phrase, look, evidence, query.surer, known) for i, phrase in composed}
    if valid is not None:  # a guess knows nothing of transparency
        made = {i: replace(each, map=each.map * valid.reshape(texture.grid.shape)) for i, each in made.items()}
    return made


def _score_vectors(
    texture: Texture, vectors: Floats, calibration: Calibration, negatives: Negatives | None
) -> tuple[Floats, Floats]:
    logits = _logits_of(texture, vectors, calibration, negatives)
    return logits, _maps_of(texture, logits, calibration)


def _maps_of(texture: Texture, logits: Floats, calibration: Calibration) -> Floats:
    maps, valid = relevance_of(logits, calibration), _validity(texture)
    if valid is not None:
        maps *= valid
    return maps


def _logits_of(texture: Texture, vectors: Floats, calibration: Calibration, negatives: Negatives | None) -> Floats:
    logits = texture.scores(vectors).reshape(len(vectors), -1)
    if calibration.contrast > 0 and negatives is not None:
        for row, vector in zip(logits, vectors, strict=True):
            row -= calibration.contrast * _against(texture, negatives, vector, calibration)
    return logits


def level_of(texture: Texture, negatives: Negatives, temperature: float) -> NDArray[np.float64]:
    """Sum over the nouns of exp(t s_j) at each cell, float64 [cells]."""

    def make() -> NDArray[np.float64]:
        every = negatives.vectors
        return np.sum([_exp_sum(texture, every[i : i + CHUNK], temperature) for i in range(0, len(every), CHUNK)], 0)

    return texture.derive(("negatives", negatives, temperature), make)


def _exp_sum(texture: Texture, vectors: Floats, temperature: float) -> NDArray[np.float64]:
    scores = texture.scores(vectors).reshape(len(vectors), -1).astype(np.float64)
    return np.asarray(np.exp(temperature * scores).sum(0))


def _against(texture: Texture, negatives: Negatives, vector: Floats, calibration: Calibration) -> Floats:
    """r of the module's formula for one text vector [D]: float32 [cells]."""
    t = calibration.temperature
    like = negatives.vectors @ vector > calibration.synonym
    level, count = level_of(texture, negatives, t), len(negatives.vectors)
    if like.any():
        level = level - _exp_sum(texture, negatives.vectors[like], t)
        count = max(count - int(like.sum()), 1)
    floor = np.exp(-t)  # the sum of one noun at its lowest: rounding in the difference cannot go below
    return np.asarray(np.log(np.maximum(level, floor) / count) / t, np.float32)


def _validity(texture: Texture) -> Floats | None:
    valid = texture.valid
    if valid is None:
        return None
    return texture.derive("validity", lambda: resize_map(valid, texture.grid.shape).ravel() / np.float32(255))
