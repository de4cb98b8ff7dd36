"""Any vision-language model of stock transformers: a photograph, a question, and as many visual tokens as you say.

    python examples/any_vlm.py Qwen/Qwen3.6-27B photo.jpg "What is on the plate?" --budget 128
    python examples/any_vlm.py --tiny gemma4              # no checkpoint: random weights, real class
    python examples/any_vlm.py --tiny list                # the classes that there are tiny models of

Whatever `AutoModelForImageTextToText` of transformers loads can be tried. A class that foveate does not know is
compared with the stock model first; --check shows what was found.
"""

import argparse
import sys
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import foveate.vlm
from foveate.vlm.loader import libraries, load_pair

PHOTO = str(files("foveate") / "cli" / "photos" / "cake_and_coffee.jpg")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", metavar="MODEL IMAGE QUESTION", help="MODEL is left out with --tiny")
    parser.add_argument("--tiny", metavar="NAME", help="a tiny random model, no checkpoint; 'list' shows all")
    parser.add_argument("--budget", type=int, default=128, help="visual tokens to keep (default 128)")
    parser.add_argument(
        "--mode", default="drop", choices=foveate.vlm.MODES, help="sparse: kept tokens alone are encoded"
    )
    parser.add_argument("--loop", action="store_true", help="call model.generate by hand, with what foveate prepared")
    parser.add_argument("--check", action="store_true", help="compare with the stock model first")
    args = parser.parse_args()
    if args.tiny is None and not args.words:
        parser.error("name a model, or --tiny NAME")
    args.model = None if args.tiny else args.words.pop(0)
    args.image = args.words.pop(0) if args.words else PHOTO
    args.question = " ".join(args.words) or "What is on the plate?"
    return args


def load(args: argparse.Namespace) -> tuple:
    """(model, processor)"""
    libraries()  # says which extra is missing
    if args.tiny:
        sys.path.insert(0, str(Path(__file__).parent.parent))
        from examples.tiny_vlms import FAMILIES, NEED_TORCHVISION, tiny

        names = [*FAMILIES, *(NEED_TORCHVISION if find_spec("torchvision") else ())]
        if args.tiny not in names:
            print(*names)
            why = "needs torchvision" if args.tiny in NEED_TORCHVISION else "does not exist: choose one of these"
            sys.exit(0 if args.tiny == "list" else f"the tiny model {args.tiny!r} {why}")
        print("its weights are random: what it answers is gibberish")
        return tiny(args.tiny)
    return load_pair(args.model)  # AutoModelForImageTextToText and AutoProcessor, without what only videos need


def main(args: argparse.Namespace) -> None:
    model, processor = load(args)
    if args.check:
        print(foveate.vlm.check(model, processor))
    vlm = foveate.vlm.attach(model, processor)
    print(vlm)

    encoded = vlm.see(args.image, mode=args.mode)  # the encoder runs once, for any number of questions
    print(encoded)
    for grid in encoded.grids:
        print(f"  {grid.h} x {grid.w} visual tokens over (y0, x0, y1, x1) = {tuple(round(n) for n in grid.box)}")
    if args.loop:
        torch, _ = libraries()
        prepared = vlm.prepare(encoded, args.question, budget=args.budget, mode=args.mode)
        with torch.no_grad():
            ids = model.generate(**prepared.inputs(), max_new_tokens=64, do_sample=False)
        text = processor.tokenizer.decode(ids[0, prepared.length :], skip_special_tokens=True)
        seconds, tokens = sum(prepared.seconds.values()), prepared.tokens
    else:
        answer = vlm.ask(encoded, args.question, budget=args.budget, mode=args.mode)
        text, seconds, tokens = answer.text, sum(answer.seconds.values()), answer.tokens
    print(args.question, "->", text)
    print("  {} of {} visual tokens,".format(*tokens), f"{seconds:.2f} s")


if __name__ == "__main__":
    try:
        main(read_arguments())
    except foveate.FoveateError as error:  # what came, what was expected, what to do
        sys.exit(f"error: {error}")
