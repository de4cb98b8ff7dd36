"""The whole main path on one screen: encode once, score anything, keep exactly K cells.

    image --encode--> Texture --score(query)--> Relevance --allocate(budget)--> Allocation

`encode` is the slow part (about a tenth of a second) and happens once an image. `score` and `allocate` are pure and
take about a hundred microseconds together; they can be called from any thread, on textures made today or loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, cast, overload

import numpy as np

from foveate.allocation.allocation import Allocation, Budget, Keep, allocate_relevance
from foveate.allocation.policies import Policy
from foveate.allocation.torch import DeviceAllocation, allocate_on_device
from foveate.channels.build import Channels, ChannelSet, build_planes, select_channels
from foveate.core.arrays import to_half
from foveate.core.checks import check_choice, check_int, check_type
from foveate.core.devices import explain_device
from foveate.core.errors import (
    FoveateError,
    ImageError,
    OptionError,
    QueryError,
    ReadingWarning,
    ResolutionHint,
    warn,
)
from foveate.core.gone import without
from foveate.core.grid import Grid
from foveate.core.image import ImageSource, Picture, is_one_colour, load_image
from foveate.core.threads import attempt, complete, is_several, map_in_order, products_in_one_thread, usual_threads
from foveate.encoders.load import match_encoder, resolve_encoder
from foveate.encoders.protocol import DenseFeatures, Encoder, check_features, encode_images
from foveate.encoders.windows import RANK, encode_native
from foveate.language.negatives import negatives_of, query_metric_of
from foveate.language.query import Query, prepare, without_things
from foveate.reading.pdf import PdfPage, is_pdf, load_page
from foveate.reading.readers import ReadBy, choose_reader, read_words
from foveate.reading.words import WordReader, Words
from foveate.relevance.fusion import DEFAULTS, Scoring, parse_options
from foveate.relevance.presets import PresetName, fill, find_preset, remember_preset
from foveate.relevance.scoring import score_query
from foveate.relevance.torch import DeviceRelevance, DeviceRelevances, check_supported, score_on_device
from foveate.relevance.value import Relevance, Relevances
from foveate.relevance.written import asks_for_words, page_of
from foveate.texture.basis import DEFAULT_RANK, compress, keep_all
from foveate.texture.texture import EncoderStamp, Texture
from foveate.texture.torch import ON_THE_CPU, DeviceTexture

Opened: TypeAlias = tuple[Picture, PdfPage | None]
Looked: TypeAlias = tuple[Opened, DenseFeatures, int | None]  # and the long side
Encoded: TypeAlias = tuple[Texture, str]  # and why it has no words
BATCH = 16  # images that go through an encoder together, if it takes several
MUCH_LARGER = 4  # times what the encoder sees: a photograph of 12 million pixels is 8 times what nano sees


class Encoding(TypedDict, total=False):
    """Keywords of `encode`, which explains them."""

    preset: PresetName | None
    encoder: str | Encoder
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
        device: where an encoder from the Hub works: "cuda", "cuda:1", "cpu", ...; None is where it was loaded before,
            else a GPU if there is one. nano stays on the CPU unless a device is named (extra `torch`).
        rank: numbers kept a cell; None is 24 (64 for long_side="native"). "full" keeps the encoder's own features.
        long_side: working size of the encoder in pixels; None is its default (512 for nano: 64 cells). "native" is the
            image's own, in overlapping windows: 512 x 512 cells for 4096 x 4096 pixels, at most.
        channels: "fast" (edges, frequencies, saliency), "standard" (the default: and segments), "all" (and writing), a
            list of names, or `Channels(...)`, which also chooses who makes segments, writing and depth.
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
    names, reader = select_channels(wanted), choose_reader(read, wanted == "all")
    network = resolve_encoder(encoder, device)
    if isinstance(long_side, str):
        check_choice("long_side", long_side, ("native",), fix='pass pixels, "native", or leave it out')
        rank = min(RANK, network.width) if rank is None else rank

    def look(opened: Opened) -> Looked:
        if isinstance(long_side, str):
            return opened, *encode_native(network, opened[0].rgb)
        return opened, network.encode_image(opened[0].rgb, long_side=long_side), long_side

    def finish(looked: Looked) -> Encoded:
        (picture, layer), dense, side = looked
        check_features(network, dense, picture.size)
        words, note = _read(picture, layer, read, reader)
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
        done = complete(map_in_order(attempt(lambda source: finish(look(open_one(source)))), given, threads))
    else:
        opened = map_in_order(attempt(open_one), given, threads)
        done = complete(map_in_order(attempt(finish), _look_together(network, opened, long_side), threads))
    for note in filter(None, (note for _, note in done)):
        warn(note, ReadingWarning)
    textures = [texture for texture, _ in done]
    if long_side is None and any(_is_much_larger(texture.grid, network) for texture in textures):
        warn(_hint(network), ResolutionHint)
    return textures if several else textures[0]


def _look_together(encoder: Any, opened: Iterator[Opened | ImageError], long_side: int | None) -> Iterator[Any]:
    """Pictures a batch at a time through an encoder that takes several; the bad ones stay in their places."""
    while batch := list(islice(opened, BATCH)):
        good = [each for each in batch if not isinstance(each, ImageError)]
        dense = iter(encode_images(encoder, [picture.rgb for picture, _ in good], long_side))
        yield from (each if isinstance(each, ImageError) else (each, next(dense), long_side) for each in batch)


def _is_much_larger(grid: Grid, encoder: Any) -> bool:
    """Whether an image is much larger than what an encoder sees that says how much that is."""
    return max(grid.height, grid.width) > MUCH_LARGER * getattr(encoder, "long_side", math.inf)


def _hint(encoder: Any) -> str:
    """The same words for every image, so that Python's own filter shows them once for a line of code."""
    sees = encoder.long_side
    return (
        f"an image of more than {MUCH_LARGER * sees} pixels along, of which '{encoder.name}' sees {sees}: small things "
        "in it may not be found"
        f"\n  expected: a smaller image, or long_side= named"
        f"\n  fix: encode(image, long_side={2 * sees}) sees twice as much, 'native' every pixel, and foveate.tiles is "
        f"for images larger still; long_side={sees} is as now, without this hint"
    )


def open_source(image: ImageSource, page: int | None = None) -> Opened:
    """An image, or a page of a PDF with its words. Raises what `encode` does for both."""
    if is_pdf(image):
        found = load_page(image, page)
        return found.picture, found
    if page is not None:
        raise OptionError(f"page={page!r} of an image", expected="a PDF, by path or bytes", fix="leave it out")
    return load_image(image), None


def _read(
    picture: Picture, layer: PdfPage | None, read: bool | ReadBy | None, reader: WordReader | None
) -> tuple[Words | None, str]:
    """The words of a texture: a PDF's own, where nobody is named to read it again; else what the reader finds.

    And why there are none, where nobody asked to read.
    """
    if layer is not None and layer.words is not None and (read is None or (read is True and not layer.scanned)):
        return layer.words, ""
    if reader is None:
        return None, ""
    try:
        return read_words(picture.rgb, reader), ""
    except FoveateError as error:
        if read is not None:
            raise
        return None, f"'{picture.name}' is encoded without its words: {error}"


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
    """The second half of `encode`: features of a picture, from the encoder or mixed from several looks, as a texture.

    `names` are planes, from `select_channels`; `words` is what was read in the picture.
    """
    grid, flat = dense.grid, dense.features.reshape(dense.grid.count, -1)
    if is_one_colour(picture.rgb):
        flat = np.zeros_like(flat)  # nothing in it: features would only show how the encoder treats borders
    if rank == "full":
        small = keep_all(flat)
    else:
        most = min(DEFAULT_RANK, encoder.width) if rank is None else rank
        small = compress(flat, rank=most, metric=query_metric_of(encoder))
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
    )
    return texture if words is None else texture.with_words(words)


@overload  # a str is a sequence of str too; the first signature wins
def score(texture: Texture, query: str, **how: Unpack[Scoring]) -> Relevance: ...  # type: ignore[overload-overlap]
@overload
def score(texture: Texture, query: Sequence[str], **how: Unpack[Scoring]) -> Relevances: ...
@overload
def score(texture: DeviceTexture, query: str, **how: Unpack[Scoring]) -> DeviceRelevance: ...  # type: ignore[overload-overlap]
@overload
def score(texture: DeviceTexture, query: Sequence[str], **how: Unpack[Scoring]) -> DeviceRelevances: ...
def score(
    texture: Texture | DeviceTexture, query: str | Sequence[str], **how: Unpack[Scoring]
) -> Relevance | Relevances | DeviceRelevance | DeviceRelevances:
    """Where a question looks in a texture: pure, about a hundred microseconds once its words are known.

    >>> relevance = score(texture, "where is the red car?")                     # doctest: +SKIP

    Args:
        texture: from `encode` or `Texture.load`; or what `texture.to(device)` gave: then the answer is there too, in
            tensors (docs/gpu.md).
        query: a question or noun phrase; a list of them gives Relevances with maps stacked [q, h, w].
        encoder: the one that made the texture. Needed only for an encoder that does not come with foveate: a
            checkpoint of your choice, or an object of your own.
        fusion: "participation" (default: the question alone), "linear", "part28", or an object of your own
            (relevance/fusion.py): the question against what is in the pixels and what stands out.
        cues: False keeps words like "red" and "written" from using their channels (language/cues.py).
        channel_weights: weights by hand, 0 to 1: {"saliency": 0.3} raises the map p where that plane c is high, to
            1 - (1 - p)(1 - 0.3 c). Each replaces what the question's words give the same channel, so 0 keeps them from
            using it. Any channel with values from 0 to 1 that the texture holds or derives; "colour:red" and the like;
            in a frame of a video "own_motion".
        reading: False leaves out what was read in the image (answers/match.py).
        smoothing: share of its segment's mean in each cell of the map, 0 to 1; default 0.3.
        prior: what was relevant before, to be mixed in: a Relevance over an image of this size (another frame's, say:
            a relevance does not know its texture), the name of a plane (an earlier pass, "history", "gaze"), or
            a map [h, w] in [0, 1] on its cells.
        prior_weight: share of the prior, 0 to 1; default 0.3.
        preset: by whose keywords a question goes, as far as they are not named here, instead of those of the texture's
            own preset. "medium" is the defaults above.

    Raises:
        QueryError: empty, too long or unreadable. TextureEncoderError: the texture is from another encoder.
        ChannelError, OptionError: a prior, a fusion or weights that are none.
        DeviceError: on a device: what works only on the CPU, a prior on another device, tensors that were written into.
    """
    if isinstance(texture, DeviceTexture):
        return _score_on_device(texture, query, how)
    check_type("texture", texture, Texture, fix="texture = encode(image), or Texture.load(file), comes before score")
    encoder = match_encoder(texture.encoder, how.get("encoder"))
    negatives = negatives_of(encoder) if encoder.calibration.contrast > 0 else None
    options = parse_options(texture, how) if how or texture.preset is not None else DEFAULTS
    if isinstance(query, str) or not isinstance(query, Iterable):
        return score_query(
            texture, _prepared(texture, encoder, query, options.reading), encoder.calibration, negatives, options
        )
    queries = [_prepared(texture, encoder, text, options.reading) for text in query]
    if not queries:
        raise QueryError("an empty list of queries", expected="at least one", fix='ask ["a dog"], say')
    return Relevances(tuple(score_query(texture, each, encoder.calibration, negatives, options) for each in queries))


def _score_on_device(texture: DeviceTexture, query: Any, how: Scoring) -> DeviceRelevance | DeviceRelevances:
    """`score` for a texture on a device: the same words, numbers and errors, and tensors there."""
    encoder = match_encoder(texture.texture.encoder, how.get("encoder"))
    negatives = negatives_of(encoder) if encoder.calibration.contrast > 0 else None
    prior: Any = how.get("prior")
    if hasattr(prior, "cpu"):  # a DeviceRelevance, or a tensor
        how = {**how, "prior": prior.cpu()}
    options = parse_options(texture.texture, how)
    check_supported(texture, options)  # before a question that only what was read can answer: "why?"

    def ask(text: str) -> DeviceRelevance:
        query = prepare(encoder, text)
        with explain_device(f"a question of {texture!r}", texture.device, ON_THE_CPU):
            return score_on_device(texture, query, encoder.calibration, negatives, options)

    if isinstance(query, str) or not isinstance(query, Iterable):
        return ask(cast("str", query))
    asked = [ask(text) for text in query]
    if not asked:
        raise QueryError("an empty list of queries", expected="at least one", fix='ask ["a dog"], say')
    return DeviceRelevances(asked)


def _prepared(texture: Texture, encoder: Encoder, text: str, reading: bool) -> Query:
    """The question for its encoder. Of a page, or an image that was read, it need not name a thing: "who sent it?"."""
    try:
        return prepare(encoder, text)
    except QueryError:
        unread = texture.words is None and page_of(texture)[1] is not None
        if not reading or not (texture.words or unread) or not isinstance(text, str) or not asks_for_words(text):
            raise
        return without_things(encoder, text)


class Allocating(TypedDict, total=False):
    """Keywords of `allocate`, which explains them."""

    floor: float | None
    policy: Policy | None
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
    policy: Policy | None = None,
    protected: np.ndarray | None = None,
    window: tuple[int, int] | None = None,
) -> Allocation | tuple[Allocation, ...] | DeviceAllocation | tuple[DeviceAllocation, ...]:
    """Keep exactly `budget` cells.

    >>> kept = allocate(relevance, budget=273)                                  # doctest: +SKIP

    A map that reaches 0.5, by the thing asked for or by anything else that entered it (`Relevance.trust`), gets the
    cells where it is highest. The lower it stays, the more of the budget follows saliency instead, and the more is
    spread evenly: half of it for a thing that is certainly not there, all of it in a featureless image. Transparent
    cells come last.

    Args:
        relevance: from `score`; of several questions, one allocation each.
        budget: cells to keep, exactly that many. "auto" takes as many as the map asks for, between a 64th and a quarter
            of the cells, and a quarter for a thing that is certainly not there. With `window`, "auto" is moved to the
            nearest sum of whole windows.
        floor: share of the budget that is spread evenly whatever the map says; None is 0.
        policy: which cells: TopK() (the default), Coverage(), Proportional() of allocation/policies.py.
        protected: bool [h, w], cells to keep in any case (those with text, say). "auto" makes room for all of them.
        window: (rows, columns): keep only whole windows of so many cells; (2, 2) for encoders that merge tokens.

    Raises:
        BudgetError: not a whole number from 1 to the number of cells, no sum of whole windows, or fewer cells than are
            protected.
        OptionError: floor outside [0, 1], protected of another shape or type, no policy, no window.
    """
    if isinstance(relevance, Relevances | DeviceRelevances):
        return tuple(  # type: ignore[return-value]  # all of one kind
            allocate(one, budget, floor=floor, policy=policy, protected=protected, window=window) for one in relevance
        )
    if isinstance(relevance, DeviceRelevance):
        with explain_device(f"an allocation of {relevance.texture!r}", relevance.device, ON_THE_CPU):
            return allocate_on_device(relevance, budget, floor=floor, policy=policy, protected=protected, window=window)
    fix = "relevance = score(texture, query) comes before allocate"
    relevance = check_type("relevance", relevance, Relevance, fix=fix)
    return allocate_relevance(relevance, budget, Keep(floor, policy, protected, window))
