"""Stands where torchvision would, in a process of its own: what image processors call, written in torch.

There is no torchvision for the torch of these tests. With this folder on the path, processors that have no PIL twin run
as they are: their tiles, their order and their padding are the library's own code; resizing is torch's.
"""

__version__ = "0.27.0"
