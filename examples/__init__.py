"""Scripts to start from: each runs by itself. tiny_vlms: random models of the real classes."""
