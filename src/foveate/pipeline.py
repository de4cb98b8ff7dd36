"""The whole main path on one screen: encode once, score anything, keep exactly K cells.

    image --encode--> Texture --score(query)--> Relevance --allocate(budget)--> Allocation

`encode` is the slow part and happens once an image. `score` and `allocate` are pure, take about a hundred microseconds
together, and can be called from any thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, cast, overload

import numpy as np

from foveate.allocation.allocation import Allocation, Budget, Keep, allocate_relevance
from foveate.allocation.policies import Policy, PolicyName
from foveate.allocation.torch import DeviceAllocation, allocate_on_device
from foveate.channels.build import Channels, ChannelSet, build_planes, select_channels
from foveate.core.arrays import to_half
from foveate.core.checks import advice, check_choice, check_int, check_type
from foveate.core.devices import explain_device
from foveate.core.errors import ImageError, OptionError, QueryError, ReadingWarning, warn
from foveate.core.gone import without
from foveate.core.image import ImageSource, Picture, is_one_colour
from foveate.core.threads import attempt, complete, is_several, map_in_order, products_in_one_thread, usual_threads
from foveate.encoders.load import join_specialists, match_encoder, resolve_encoder
from foveate.encoders.names import read_name
from foveate.encoders.protocol import DenseFeatures, Encoder, check_features, encode_images, gpu_of
from foveate.encoders.specialists import Specialist
from foveate.encoders.taught import TaughtWords, learn, looks_revision
from foveate.encoders.windows import RANK, encode_native, hint_at_resolution
from foveate.language.negatives import negatives_of, query_metric_of
from foveate.language.query import parse, prepare
from foveate.reading.pdf import PdfPage, is_pdf, open_source
from foveate.reading.readers import ReadBy, choose_reader, read_picture
from foveate.reading.words import Words
from foveate.relevance.boxes import check_box
from foveate.relevance.options import DEFAULTS, ScoringOptions, parse_options
from foveate.relevance.presets import PresetName, fill, find_preset, remember_preset
from foveate.relevance.scoring import score_query
from foveate.relevance.torch import (
    DeviceRelevance,
    DeviceRelevances,
    check_supported,
    options_on_device,
    score_on_device,
)
from foveate.relevance.value import Relevance, Relevances
from foveate.relevance.written import prepare_question
from foveate.texture.basis import DEFAULT_RANK, compress, keep_all
from foveate.texture.texture import EncoderStamp, Texture
from foveate.texture.torch import ON_THE_CPU, DeviceTexture

Opened: TypeAlias = tuple[Picture, PdfPage | None]
Looked: TypeAlias = tuple[Opened, DenseFeatures, int | None]  # and the long side
Encoded: TypeAlias = tuple[Texture, str]  # and why it has no words
BATCH = 16  # images that go through an encoder together, if it takes several
AT_A_TIME = 2  # such batches, on a GPU


class Encoding(TypedDict, total=False):
    """Keywords of `encode`, which explains them."""

    preset: PresetName | None
    encoder: str | Encoder
    specialists: Sequence[str | Path | Specialist]
    device: str | None
    rank: int | Literal["full"] | None
    long_side: int | Literal["native"] | None
    channels: ChannelSet | Sequence[str] | Channels | None
    read: bool | ReadBy | None
    page: int | None
    threads: int | None


@overload  # a str is a sequence of str too; the first signature wins
def encode(image: ImageSource, **how: Unpack[Encoding]) -> Texture: ...  # type: ignore[overload-overlap]
@overload
def encode(image: Sequence[ImageSource], **how: Unpack[Encoding]) -> list[Texture]: ...
@without("encode")
def encode(
    image: ImageSource | Sequence[ImageSource],
    *,
    preset: PresetName | None = None,
    encoder: str | Encoder = "nano",
    specialists: Sequence[str | Path | Specialist] = (),
    device: str | None = None,
    rank: int | Literal["full"] | None = None,
    long_side: int | Literal["native"] | None = None,
    channels: ChannelSet | Sequence[str] | Channels | None = None,
    read: bool | ReadBy | None = None,
    page: int | None = None,
    threads: int | None = None,
) -> Texture | list[Texture]:
    """Encode an image once, for any number of questions; or a list of images, as a list of textures in their order.

    >>> texture = encode("photo.jpg")                                           # doctest: +SKIP
    >>> textures = encode(["a.jpg", "b.jpg", "c.jpg"])                          # doctest: +SKIP

    Args:
        image: path, encoded bytes, PIL image, array [H, W, 3], or what `load_image` returned (floats need it, with
            `value_range`); or a PDF (extra `text`). A list of such is several images, worked on at the same time; each
            texture is what it would be alone. All stay in memory: for thousands take slices, or a `Store`.
        preset: "static", "video", "text", "gaze", "document", "minimum", "medium" or "maximum": chooses rank,
            long_side, channels and read, where they are not named here (docs/presets.md). The texture remembers it.
        encoder: "nano" (built in), "clip", "clip:NAME_OR_FOLDER", or an object with the members of `Encoder`.
        specialists: classifiers of yours that join nano, as files (.onnx; .tflite with the extra `specialists`) with
            their labels beside them, or `Specialist.read(file, ...)` from foveate.encoders: their classes become words
            of this texture (docs/encoders.md). encoder="nano+birds.onnx" says the same wherever an encoder is named.
        device: where an encoder from the Hub works: "cuda", "cuda:1", "cpu", ...; None is where it was loaded before,
            else a GPU if there is one. nano stays on the CPU unless a device is named (extra `torch`).
        rank: numbers kept a cell; None is 24 (64 for long_side="native"). "full" keeps the encoder's own features.
        long_side: working size of the encoder in pixels; None is its default (512 for nano: 64 cells). "native" is the
            image's own, in overlapping windows: 512 x 512 cells for 4096 x 4096 pixels, at most.
        channels: "fast" (edges, frequencies, saliency), "standard" (the default: and segments), "all" (and writing),
            "basic", "similarity", "everything" (docs/channels.md), a list of names, or `Channels(...)`, which also
            chooses who makes segments, writing and depth.
        read: whether to read what is written, which takes seconds: True, or by whom ("rapidocr", an object with `name`
            and `read(rgb)`, a function rgb -> words). None reads for channels="all" where a reader is installed, and
            keeps the text layer of a PDF.
        page: of a PDF, from 1; None is the only one. In a list it counts for the PDFs.
        threads: how many of several images are worked on at a time; None is as many as there are cores, 16 at most.

    Raises:
        ImageNotFoundError, ImageFormatError, ImageDecodeError, ImageTooLargeError, ImageArrayError: the image.
        PageError: a PDF without that page, or with several and none named.
        BadImagesError: some of several images; it has the textures of the others.
        EncoderNameError, EncoderFilesError, EncoderOutputError: the encoder.
        MissingExtraError, ModelFilesError: an encoder or a reader that is not installed, or lacks its files.
        ChannelError: the channels. OptionError: anything else.
    """
    how = fill({"channels": "standard", **find_preset(preset).encoding}, rank=rank, long_side=long_side, read=read)
    rank, long_side, read = how.get("rank"), how.get("long_side"), how.get("read")
    methods = channels if isinstance(channels, Channels) else Channels(channels)
    wanted = how["channels"] if methods.names is None else methods.names
    names, reader = select_channels(wanted, methods.depth), choose_reader(read, wanted in ("all", "everything"))
    network = resolve_encoder(encoder, device)
    if specialists not in (None, (), []):
        network = join_specialists(network, specialists)
    if isinstance(long_side, str):
        check_choice("long_side", long_side, ("native",), fix='pass pixels, "native", or leave it out')
        rank = min(RANK, network.width) if rank is None else rank

    def look(opened: Opened) -> Looked:
        if isinstance(long_side, str):
            return opened, *encode_native(network, opened[0].rgb)
        return opened, network.encode_image(opened[0].rgb, long_side=long_side), long_side

    def finish(looked: Looked) -> Encoded:
        (picture, page_read), dense, side = looked
        check_features(network, dense, picture.size)
        words, note = read_picture(picture, page_read, read, reader)
        with products_in_one_thread():
            texture = build_texture(picture, dense, network, names, methods, rank=rank, long_side=side, words=words)
        return remember_preset(texture, preset), note

    def open_one(source: ImageSource) -> Opened:
        return open_source(source, page if not several or is_pdf(source) else None)

    given: Any = image  # one, or a list
    several = is_several(given)
    threads = usual_threads() if threads is None else check_int("threads", threads)
    if not several:
        done = [finish(look(open_one(given)))]
    elif not hasattr(network, "encode_images") or isinstance(long_side, str):
        done = complete(map_in_order(attempt(lambda one: finish(look(open_one(one)))), given, threads, many=len(given)))
    else:
        opened = map_in_order(attempt(open_one), given, threads)
        done = complete(map_in_order(attempt(finish), _look_together(network, opened, long_side), threads))
    for note in filter(None, (note for _, note in done)):
        warn(note, ReadingWarning)
    textures = [texture for texture, _ in done]
    if long_side is None:
        hint_at_resolution(network, (texture.grid for texture in textures))
    return textures if several else textures[0]


def _look_together(encoder: Any, opened: Iterator[Opened | ImageError], long_side: int | None) -> Iterator[Any]:
    def look(batch: list[Opened | ImageError]) -> list[Any]:
        good = [each for each in batch if not isinstance(each, ImageError)]
        dense = iter(encode_images(encoder, [picture.rgb for picture, _ in good], long_side))
        return [each if isinstance(each, ImageError) else (each, next(dense), long_side) for each in batch]

    batches = iter(lambda: list(islice(opened, BATCH)), [])
    # A GPU gets the next batch while it has one: that one is resized and sent meanwhile.
    looked = map(look, batches) if gpu_of(encoder) is None else map_in_order(look, batches, AT_A_TIME)
    return chain.from_iterable(looked)


def build_texture(
    picture: Picture,
    dense: DenseFeatures,
    encoder: Encoder,
    names: Sequence[str],
    methods: Channels | None = None,
    *,
    rank: int | Literal["full"] | None = None,
    long_side: int | None = None,
    words: Words | None = None,
) -> Texture:
    """The second half of `encode`: features of a picture, and what was read in it, as a texture."""
    grid, columns = dense.grid, dense.columns
    if rank == "full" or (isinstance(rank, int) and rank > dense.features.shape[-1]):
        dense, columns = replace(dense, features=dense.full(encoder.width)), None
    flat = dense.features.reshape(grid.count, -1)
    if is_one_colour(picture.rgb):
        flat = np.zeros_like(flat)  # nothing in it: features would only show how the encoder treats borders
    if rank == "full":
        small = keep_all(flat)
    else:
        most = min(DEFAULT_RANK, encoder.width) if rank is None else rank
        small = compress(flat, most, query_metric_of(encoder), columns, encoder.width)
    z = small.z.reshape(*grid.shape, -1)
    planes, made_by = build_planes(names, picture.rgb, z, methods)
    texture = Texture(
        grid=grid,
        pixel=picture.rgb,
        valid=picture.valid,
        planes={name: to_half(plane) for name, plane in planes.items()},
        embedding=z,
        basis=small.basis,
        residual=small.residual.reshape(grid.shape),
        encoder=EncoderStamp(encoder.name, encoder.revision, encoder.width),
        preprocessing={
            "long_side": None if long_side is None else int(long_side),
            "compression": "full" if rank == "full" else "query",
        },
        name=picture.name,
        made_by=made_by,
        looks=dense.looks,
    )
    return texture if words is None else texture.with_words(words)


@overload  # a str is a sequence of str too; the first signature wins
def score(texture: Texture, query: str, **how: Unpack[ScoringOptions]) -> Relevance: ...  # type: ignore[overload-overlap]
@overload
def score(texture: Texture, query: Sequence[str], **how: Unpack[ScoringOptions]) -> Relevances: ...
@overload
def score(texture: DeviceTexture, query: str, **how: Unpack[ScoringOptions]) -> DeviceRelevance: ...  # type: ignore[overload-overlap]
@overload
def score(texture: DeviceTexture, query: Sequence[str], **how: Unpack[ScoringOptions]) -> DeviceRelevances: ...
@overload
def score(texture: Sequence[Texture], query: str, **how: Unpack[ScoringOptions]) -> Relevances: ...
@overload
def score(texture: Sequence[DeviceTexture], query: str, **how: Unpack[ScoringOptions]) -> DeviceRelevances: ...
def score(
    texture: Texture | DeviceTexture | Sequence[Texture] | Sequence[DeviceTexture],
    query: str | Sequence[str],
    **how: Unpack[ScoringOptions],
) -> Relevance | Relevances | DeviceRelevance | DeviceRelevances:
    """Where a question looks in a texture: pure, about a hundred microseconds once its words are known.

    >>> relevance = score(texture, "where is the red car?")                     # doctest: +SKIP

    Args:
        texture: from `encode` or `Texture.load`; or from `texture.to(device)`: then the answer is in tensors there.
            A list of several gives Relevances, with maps stacked [B, h, w] where their cells are as many.
        query: a question or noun phrase; a list of them gives Relevances with maps stacked [q, h, w].
        fusion: "participation" (the question alone), "linear", "part28", or a `Fusion`: how the question, what is in
            the pixels and what stands out are combined.
        cues: False keeps words like "red" and "written" from using their channels.
        channel_weights: {"saliency": 0.3} raises the map p where that plane c is high, to 1 - (1 - p)(1 - 0.3 c). 0
            keeps the question's words from using a channel. On a device a weight may be a tensor, for its gradient.
        reading: False leaves out what was read in the image.
        smoothing: share of its segment's mean in each cell of the map, 0 to 1; 0.3.
        prior: a map that is mixed in: a Relevance over an image of this size, the name of a plane (an earlier pass,
            "history", "gaze"), or an array [h, w] in [0, 1] on the cells.
        prior_weight: share of the prior, 0 to 1; 0.3.
        preset: by whose keywords the question goes, instead of those of the texture's own preset.
        words: taught words (`teach`, `TaughtWords.load`), which the question may name beside the encoder's own.
        encoder: the one that made the texture; needed only for one that does not come with foveate.

    Raises:
        QueryError: empty, too long or unreadable. TextureEncoderError: the texture is from another encoder, or
            holds nothing that taught words could be found by.
        ChannelError, OptionError: a prior, a fusion or weights that are none.
        DeviceError: on a device: what works only on the CPU, a prior on another device.
    """
    if isinstance(texture, list | tuple):
        return _score_several(texture, query, how)
    if isinstance(texture, DeviceTexture):
        ask: Callable[[str], Any] = _ask_on_device(texture, how)
    else:
        fix = "texture = encode(image), or Texture.load(file), comes before score"
        ask = _ask(check_type("texture", texture, Texture, fix=fix), how)
    if isinstance(query, str) or not isinstance(query, Iterable):
        return cast("Relevance | DeviceRelevance", ask(query))
    found = [ask(text) for text in query]
    if not found:
        raise QueryError("an empty list of queries", expected="at least one", fix='ask ["a dog"], say')
    return DeviceRelevances(found) if isinstance(texture, DeviceTexture) else Relevances(tuple(found))


def _score_several(textures: Sequence[Any], query: Any, how: ScoringOptions) -> Relevances | DeviceRelevances:
    if not textures or not isinstance(query, str):
        raise OptionError(
            f"{len(textures)} textures and {len(query) if isinstance(query, list | tuple) else query!r} questions",
            expected="one question of at least one texture, or several of one",
            fix="[score(one, questions) for one in textures]; a Store asks thousands of images at once",
        )
    found: list[Any] = [score(one, query, **how) for one in textures]
    on_device = {isinstance(one, DeviceTexture) for one in textures}
    if len(on_device) > 1:
        raise OptionError("textures some of which are on a device", expected="all or none", fix="texture.to(device)")
    return DeviceRelevances(found) if True in on_device else Relevances(tuple(found))


def _ask(texture: Texture, how: ScoringOptions) -> Callable[[str], Relevance]:
    encoder = match_encoder(texture.encoder, how.get("encoder"))
    negatives = negatives_of(encoder) if encoder.calibration.contrast > 0 else None
    options = parse_options(texture, how) if how or texture.preset is not None else DEFAULTS
    taught = _check_words(how.get("words"))
    seen, reads = (texture, encoder) if taught is None else taught.on(texture, encoder)

    def ask(text: str) -> Relevance:
        query = prepare_question(seen, reads, text, options.reading)
        found = score_query(seen, query, encoder.calibration, negatives, options)
        if taught is None:
            return found
        return replace(found, texture=texture, features=texture.coordinates().reshape(*texture.grid.shape, -1))

    return ask


def _check_words(words: object) -> TaughtWords | None:
    if words is None:
        return None
    fix = "foveate.teach makes them, foveate.TaughtWords.load('words.fov') reads a file"
    return check_type("words", words, TaughtWords, fix=fix)


def teach(
    name: str,
    boxes: Iterable[tuple[ImageSource | Texture, Sequence[float]]],
    *,
    without: Iterable[ImageSource | Texture] = (),
    words: TaughtWords | None = None,
) -> TaughtWords:
    """Make a word of a handful of boxes: for a thing that the encoder has no name for (docs/teach.md).

    >>> words = teach("our logo", [("a.jpg", (10, 20, 80, 90)), ("b.jpg", (5, 5, 60, 70))])    # doctest: +SKIP
    >>> score(encode("c.jpg"), "our logo", words=words).detected                               # doctest: +SKIP

    Args:
        name: one noun phrase. Articles before it do not count: "our logo" is asked for by "the logo", and "logos", too.
        boxes: (image, box) pairs. An image is what `encode` takes, or a texture of nano; a box is (y0, x0, y1, x1) in
            its pixels. An image may come several times; what no box covers of it should not show the thing.
        without: images, or textures, that do not show it: things that it was mistaken for.
        words: words that were taught before. The word joins them; boxes of the same name are added to its own.

    Raises:
        QueryError: the name is no noun phrase. OptionError: no boxes, or a box outside of its image.
        TextureEncoderError: a texture, or `words`, of another encoder or release. For images what `encode` raises.
    """
    phrases = parse(name).phrases if isinstance(name, str) and name.strip() else ()
    if len(phrases) != 1 or read_name(phrases[0]) != read_name(name):  # "the green thing" asks for what is green
        raise QueryError(
            f"{name!r} as the name of a word",
            expected="one noun phrase",
            fix='call it "our logo", or "door handle"; what a question would cut goes in quotes, here and when you ask',
        )
    pairs, earlier = [_check_pair(pair) for pair in boxes], _check_words(words)
    if earlier is not None:
        earlier.check()
    if not pairs:
        raise OptionError(
            "no boxes",
            expected="at least one (image, box) pair",
            fix=_example(),
        )
    seen: dict[Hashable, tuple[Texture, list[Sequence[float]]]] = {}
    for source, box in pairs:
        key = str(source) if isinstance(source, str | os.PathLike) else id(source)
        texture, held = seen.setdefault(key, (seen[key][0] if key in seen else _see(source), []))
        held.append(check_box(box, texture.grid))
    word = learn(phrases[0], list(seen.values()), [_see(source) for source in without])
    return (TaughtWords((), looks_revision()) if earlier is None else earlier).joined(word)


def _see(source: Any) -> Texture:
    if not isinstance(source, Texture):
        return encode(source, channels="fast")
    match_encoder(source.encoder, None)
    return source


def _example() -> str:
    return advice('teach("our logo", [("a.jpg", (10, 20, 80, 90))])', 'foveate teach "our logo" a.jpg:10,20,80,90')


def _check_pair(pair: Any) -> tuple[Any, Any]:
    if isinstance(pair, tuple | list) and len(pair) == 2:
        return pair[0], pair[1]
    raise OptionError(
        f"{str(pair)[:60]!r} as an example",
        expected="(image, box) pairs",
        fix=_example(),
    )


def _ask_on_device(texture: DeviceTexture, how: ScoringOptions) -> Callable[[str], DeviceRelevance]:
    encoder = match_encoder(texture.texture.encoder, how.get("encoder"))
    negatives = negatives_of(encoder) if encoder.calibration.contrast > 0 else None
    options = options_on_device(texture, how)
    check_supported(
        texture, options, words=how.get("words") is not None
    )  # before a question that only what was read can answer: "why?"

    def ask(text: str) -> DeviceRelevance:
        query = prepare(encoder, text)
        with explain_device(f"a question of {texture!r}", texture.device, ON_THE_CPU):
            return score_on_device(texture, query, encoder.calibration, negatives, options)

    return ask


class Allocating(TypedDict, total=False):
    """Keywords of `allocate`, which explains them."""

    floor: float | None
    policy: Policy | PolicyName | None
    protected: np.ndarray | None
    window: tuple[int, int] | None


@overload
def allocate(relevance: Relevance, budget: Budget = "auto", **how: Unpack[Allocating]) -> Allocation: ...
@overload
def allocate(relevance: Relevances, budget: Budget = "auto", **how: Unpack[Allocating]) -> tuple[Allocation, ...]: ...
@overload
def allocate(relevance: DeviceRelevance, budget: Budget = "auto", **how: Unpack[Allocating]) -> DeviceAllocation: ...
@overload
def allocate(
    relevance: DeviceRelevances, budget: Budget = "auto", **how: Unpack[Allocating]
) -> tuple[DeviceAllocation, ...]: ...
def allocate(
    relevance: Relevance | Relevances | DeviceRelevance | DeviceRelevances,
    budget: Budget = "auto",
    *,
    floor: float | None = None,
    policy: Policy | PolicyName | None = None,
    protected: np.ndarray | None = None,
    window: tuple[int, int] | None = None,
) -> Allocation | tuple[Allocation, ...] | DeviceAllocation | tuple[DeviceAllocation, ...]:
    """Keep exactly `budget` cells.

    >>> kept = allocate(relevance, budget=273)                                  # doctest: +SKIP

    Cells are kept by their worth: what is asked for first, and of cells that look alike the most relevant one; a share
    of context beside it, more of it where the question is about everything, or about what is beside a thing
    (allocation/worth.py has the rule). The choice for 64 is the beginning of the choice for 128. Transparent cells come
    last.

    Args:
        relevance: from `score`; of several questions, one allocation each.
        budget: cells to keep; "auto" takes as many as the map asks for, between a 64th and a quarter of the cells;
            most where nothing is found.
        floor: share of the budget that is spread evenly whatever the map says; None is 0.
        policy: another rule: TopK(), the map alone; Coverage(), Proportional(), DPP(), MaxMin(); or its name, "topk".
        protected: bool [h, w], cells to keep in any case (those with text, say).
        window: (rows, columns): keep only whole windows of so many cells; (2, 2) for encoders that merge tokens.

    Raises:
        BudgetError: not 1 to the number of cells, no sum of whole windows, fewer cells than are protected.
        OptionError: floor, protected, policy or window.
    """
    keep = Keep(floor, policy, protected, window)
    if isinstance(relevance, Relevances | DeviceRelevances):
        return tuple(allocate(one, budget, **vars(keep)) for one in relevance)  # type: ignore[return-value]
    if isinstance(relevance, DeviceRelevance):
        with explain_device(f"an allocation of {relevance.texture!r}", relevance.device, ON_THE_CPU):
            return allocate_on_device(relevance, budget, **vars(keep))
    fix = "relevance = score(texture, query) comes before allocate"
    return allocate_relevance(check_type("relevance", relevance, Relevance, fix=fix), budget, keep)
