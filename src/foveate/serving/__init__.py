"""Question-chosen visual tokens inside vLLM: a plug-in, without a fork or a patch (docs/serving.md).

    vllm serve Qwen/Qwen2.5-VL-7B-Instruct --trust-request-mm-kwargs
    # in a request: "mm_processor_kwargs": {"foveate_budget": 128}

Mixins are placed first in the bases of vLLM's classes. In the API's process, the processor's mixin chooses visual
tokens, and puts so many placeholders into the prompt. In the engine's process, the model's mixin passes the kept rows
on, at the positions that they have in the full prompt.

* plugin.py: what vLLM loads at its start. Begin here. families.py: the classes that it then looks up by architecture.
* request.py: what a client may ask for, checked, and what a prompt asks.
* selection.py: images, question, budget -> rows that are kept. Textures are kept by the content of their images.
* workers.py: textures in processes beside the API's. renderer.py: requests wait for these before they have their turn.
* repeated.py: rows that are kept where no question is asked: those whose pixels no neighbour has.
* layouts.py: where visual tokens lie, and what travels between the processes. features.py: features of images.
* kept.py: vLLM's encoders over the patches of kept tokens alone.
* processor.py, model.py: the two mixins. hooks.py: vLLM's classes, and whether they still have what the mixins need.
* metrics.py: counts for /metrics.
"""
