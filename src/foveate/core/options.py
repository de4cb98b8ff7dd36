"""The keywords that functions and commands share, in one table: for `--help`, docs/defaults.md and signatures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Option:
    """A keyword: what it may be, its default (as `repr` shows it), what it does (in one sentence, for Python and for a
    command), and what the default stands for, where that is not plain.
    """

    name: str
    values: str
    default: str
    about: str
    usual: str = ""

    @property
    def help(self) -> str:
        """The text of `--help`. The command adds a plain default itself."""
        return f"{self.about} [default: {self.usual}]" if self.usual else self.about

    @property
    def row(self) -> str:
        usual = f": {self.usual}" if self.usual else ""
        return f"| `{self.name}` | {self.values} | `{self.default}`{usual} | {self.about} |"


def _table(*options: Option) -> Mapping[str, Option]:
    return {option.name: option for option in options}


SHARE = "0 to 1"

BUDGET = Option(
    "budget", "a number of cells, or auto", "'auto'",
    "Cells to keep for each question: exactly so many; auto: as many as the map asks for, 1/64 to 1/4 of them, most "
    "where nothing is found.",
)  # fmt: skip
PRESET = Option(
    "preset", "a name", "None",
    "What it is for: static, video, text, gaze, document, minimum, medium or maximum; options that are named win "
    "(docs/presets.md).",
    "medium",
)  # fmt: skip
ENCODER = Option(
    "encoder", "a name, or an object", "'nano'",
    "The network that sees: nano; nano+FILE.onnx, with a classifier of yours (docs/encoders.md); or clip, siglip, "
    "tips, alone or as clip:NAME_OR_FOLDER.",
)  # fmt: skip
RANK = Option("rank", "1 to the encoder's width, or full", "None", "Numbers kept a cell.", "24; 64 with native")
LONG_SIDE = Option(
    "long_side", "pixels, or native", "None",
    "Working size of the encoder; native: the image's own, for small things in photographs of up to 4096 pixels.",
    "the encoder's own, 512 for nano",
)  # fmt: skip
CHANNELS = Option(
    "channels", "a set, names, or Channels(...)", "None",
    "Planes to compute: fast (edges, saliency), standard (and segments), all (and writing), or names of planes.",
    "standard",
)  # fmt: skip
READ = Option(
    "read", "yes, no, or who reads", "None", "Read what is written, which takes seconds.",
    "for channels all, if a reader is installed",
)  # fmt: skip
PRIOR = Option("prior", "the name of a plane, a map, a relevance", "None", "An earlier map that is mixed in.", "none")
PRIOR_WEIGHT = Option("prior_weight", SHARE, "0.3", "Share of the prior in the map.")
POLICY = Option(
    "policy", "topk, coverage, dpp, maxmin, proportional, or an object", "None",
    "Another rule for which cells are kept (topk: the map alone).", "the question's cells and a context",
)  # fmt: skip
FLOOR = Option("floor", SHARE, "None", "Share of the budget that is spread evenly over the image.", "0")
WORDS = Option("words", "TaughtWords", "None", "Taught words that a question may name (docs/teach.md).", "none")

ENCODE = _table(
    PRESET,
    ENCODER,
    Option("specialists", "files, or Specialist.read(...)", "()",
           "Classifiers of yours whose classes become words of the texture, beside nano's."),
    Option("device", "cpu, cuda, cuda:1, ...", "None", "Where the encoder works.",
           "where it was loaded last, else a GPU if there is one; nano on the CPU"),
    RANK,
    LONG_SIDE,
    CHANNELS,
    READ,
    Option("page", "1 and up", "None", "Page of a PDF.", "the only one"),
    Option("threads", "1 and up", "None", "Images worked on at a time.", "as many as there are cores, 16 at most"),
)  # fmt: skip
SCORE = _table(
    Option("fusion", "participation, linear, part28, an object", "'participation'",
           "How the question, the pixels and what stands out are combined; participation is the question alone."),
    Option("cues", "yes or no", "True", "Whether words like red and written use their channels."),
    Option("channel_weights", "weights of 0 to 1 by channel", "None", "Channels that raise the map.", "none"),
    Option("reading", "yes or no", "True", "Whether words that were read count."),
    Option("smoothing", SHARE, "0.3", "Share of its segment's mean in each cell."),
    PRIOR,
    PRIOR_WEIGHT,
    replace(PRESET, about="Whose keywords a question goes by.", usual="the texture's"),
    WORDS,
    replace(ENCODER, default="None", about="The encoder that made the texture.", usual="the texture's"),
)  # fmt: skip
KEEP = _table(
    FLOOR,
    POLICY,
    Option("protected", "bool [h, w]", "None", "Cells to keep in any case.", "none"),
    Option("window", "(rows, columns)", "None", "Keep whole windows of so many cells.", "single cells"),
)
ALLOCATE = _table(BUDGET, *KEEP.values())
STREAM = _table(
    BUDGET,
    PRESET,
    ENCODER,
    replace(RANK, values="1 to the encoder's width", usual="24"),
    replace(LONG_SIDE, values="pixels", about="Working size of the encoder."),
    CHANNELS,
    replace(READ, about="Read what is written, in keyframes; takes seconds each time.", usual="no"),
    replace(PRIOR, values="the name of a plane"),
    Option(
        "keep", "Keep(...)", "None", "The keywords of `allocate` beside the budget; policy: the map alone.", "Keep()"
    ),
    Option("propagation", "Propagation(...)", "None", "How frames follow from one another.", "Propagation()"),
    WORDS,
)
PROPAGATION = _table(
    Option("flow", "Dis(), or a function of two pictures", "Dis()", "Where each place was in the frame before."),
    Option("refresh", "Refresh(...)", "Refresh()", "When to encode again: after 12 frames, or sooner."),
    Option("blend", SHARE, "0.5", "Share of the propagated features in a keyframe's."),
    Option("smoothing", SHARE, "0.5", "Share of the frame before in each map."),
    Option("hysteresis", SHARE, "0.05", "Advantage of cells that were kept before, as a share of the map's peak."),
    Option("changed", SHARE, "0.03", "Difference of a cell's colours above which it is sent again."),
    Option("read_every", "seconds", "2.0", "Seconds of the clip between two readings, at least."),
    replace(PRIOR_WEIGHT, default="None", usual="the preset's, else 0.3"),
)
SEE = _table(
    Option("mode", "drop, sparse, weight, crop", "'drop'",
           "drop: tokens go after the encoder. sparse: before it. weight: all stay, scaled. crop: regions, larger."),
    PRESET,
    replace(READ, usual="where it looks like a page, if a reader is installed"),
    ENCODE["page"],
    Option("texture", "a Texture", "None", "A texture of the image.", "one is made"),
)  # fmt: skip
PREPARE = _table(
    replace(
        BUDGET,
        values="a number of tokens, auto, lossless, or None for all",
        about="Visual tokens that the model gets: exactly so many; auto: as many as the map asks for, 1/64 to 1/4 "
        "of them, most where nothing is found; lossless: all but those whose pixels a neighbour has; all: the stock "
        "model.",
    ),
    SEE["mode"],
    Option("method", "the name of one", "'relevance'",
           "How tokens are chosen: relevance; changed (video); or random, uniform, saliency, maxmin, dpp, downsample "
           "to compare."),
    Option("prompt", "a text", "None",
           "The whole prompt, for a model without a chat template: its image token, and {question} where the question "
           "goes.", "the model's chat template"),
    Option("kept", "an Allocation, or a bool mask", "None", "The tokens to keep, chosen by the caller.", "the budget"),
    Option("relevance", "a text, a relevance, a map", "None", "Where to look.", "where the question says"),
    Option("boxes", "(y0, x0, y1, x1) in pixels, several", "None", "Look into these.", "where the question says"),
    Option("choosing", "Choosing(...)", "Choosing()", "How tokens are chosen within the budget."),
    Option("scoring", "ScoringOptions(...)", "{}", "The keywords of `foveate.score`."),
)  # fmt: skip
CHOOSING = _table(
    FLOOR,
    replace(KEEP["policy"], about="Another rule for which tokens are kept, for method relevance."),
    replace(KEEP["protected"], values="bool [h, w] over the image", about="Tokens to keep first, where it is True."),
    replace(KEEP["window"], about="Keep whole windows of so many tokens.", usual="single tokens"),
    Option("seed", "0 and up", "0", "Of method random."),
    Option(
        "redundancy",
        "0 to 255",
        "None",
        "Tokens whose pixels a neighbour has, to so many levels, come last.",
        "as others",
    ),
    Option("weights", "tensors", "None", "For mode weight: a factor for each token.", "0.5 to 1, by the map"),
)
MODEL_ARGS = _table(
    replace(PREPARE["budget"], values="a number, auto, lossless, all, or a share: 25%"),
    PREPARE["method"],
    SEE["mode"],
    CHOOSING["floor"],
    Option("dtype", "auto, float32, bfloat16, float16", "'auto'", "Numbers of the language model.", "the checkpoint's"),
    Option("device", "auto, cpu, cuda", "'auto'", "Where the language model works.", "a GPU, where there is one"),
    ENCODER,
    CHOOSING["seed"],
    Option("images", "1 and up", "16", "Images that stay encoded."),
    replace(SEE["read"], default="'auto'"),
    Option("max_new_tokens", "1 and up", "128", "Length of an answer, at most."),
    Option("batch_size", "1", "1", "Questions at a time."),
)
TABLES: Mapping[str, Mapping[str, Option]] = {
    "foveate.encode": ENCODE,
    "foveate.score": SCORE,
    "foveate.allocate": ALLOCATE,
    "foveate.video.stream": STREAM,
    "foveate.video.Propagation": PROPAGATION,
    "VLM.see": SEE,
    "VLM.prepare": PREPARE,
    "foveate.vlm.Choosing": CHOOSING,
    "--model_args": MODEL_ARGS,
}
