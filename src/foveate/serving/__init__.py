"""Question-chosen visual tokens inside vLLM: a plug-in, without a fork or a patch (docs/serving.md).

    pip install 'foveate[vllm]'
    vllm serve Qwen/Qwen2.5-VL-7B-Instruct --trust-request-mm-kwargs
    # in a request: "mm_processor_kwargs": {"foveate_budget": 128}

An image goes through two processes. In the API's, our mixin before the stock processor chooses which visual tokens are
kept, and puts so many placeholders into the prompt. In the engine's, our mixin before the stock model passes the kept
rows on, at the positions that they have in the full prompt.

* plugin.py: what vLLM loads at its start. Begin here. families.py: the classes that it then looks up by architecture.
* request.py: what a client may ask for, checked, and what a prompt asks.
* selection.py: images, question, budget -> rows that are kept. Textures are kept by the content of their images.
* layouts.py: where visual tokens lie, and what travels between the processes. features.py: full features of images.
* processor.py: before the stock processor. model.py: before the stock model. Both are mixins that only call what they
  stand before. hooks.py: the stock classes, and whether all of vLLM is there that these stand on.
* metrics.py: counts for /metrics.
"""
