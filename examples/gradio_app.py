"""A page of Gradio's: a photograph, a question, a budget; heat and kept cells beside one another.

    pip install foveate gradio
    python examples/gradio_app.py

`foveate view` does more, without Gradio. This shows how foveate goes into an application: the image is encoded once,
when it comes; a question costs milliseconds then, so the pictures follow while somebody types.
"""

from __future__ import annotations

import gradio as gr
from PIL import Image

import foveate
from foveate import FoveateError, Texture, viz

SIDE = 640  # pixels of the pictures


def encode(image: Image.Image | None) -> Texture | None:
    """Once an image."""
    return None if image is None else foveate.encode(image)


def look(texture: Texture | None, question: str, budget: int) -> tuple[Image.Image | None, Image.Image | None, str]:
    """Once a question: heat, kept cells, and what is said of it."""
    if texture is None or not question.strip():
        return None, None, "Choose an image and ask for something in it."
    try:
        relevance = foveate.score(texture, question)
    except FoveateError as error:
        return None, None, str(error)
    kept = foveate.allocate(relevance, min(budget, texture.grid.count))
    found = "detected" if relevance.detected else "not detected"
    unknown = f" Not understood: {', '.join(relevance.unknown)}." if relevance.unknown else ""
    said = f"Confidence {relevance.confidence:.2f}: {found}. {len(kept)} of {texture.grid.count} cells.{unknown}"
    heat = viz.heatmap(texture, relevance, side=SIDE, labels=False)
    return heat, viz.kept(texture, kept, side=SIDE, labels=False), said


def make_page() -> gr.Blocks:
    """The page."""
    with gr.Blocks(title="foveate") as page:
        texture = gr.State()
        with gr.Row():
            image = gr.Image(type="pil", label="Image")
            heat, kept = gr.Image(label="Where the question looks"), gr.Image(label="Kept cells")
        question = gr.Textbox(label="Question", placeholder="the red car")
        budget = gr.Slider(1, 1024, value=64, step=1, label="Budget: cells to keep")
        said = gr.Markdown()
        asked = {"fn": look, "inputs": [texture, question, budget], "outputs": [heat, kept, said]}
        image.change(encode, image, texture).then(**asked)
        gr.on([question.input, budget.change], trigger_mode="always_last", **asked)
    return page


if __name__ == "__main__":
    make_page().launch()
