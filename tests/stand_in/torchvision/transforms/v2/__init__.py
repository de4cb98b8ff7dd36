from torchvision.transforms.v2 import functional as functional
from torchvision.transforms.v2.functional import InterpolationMode as InterpolationMode
