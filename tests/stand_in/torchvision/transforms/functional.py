from torchvision.transforms.v2.functional import *  # noqa: F403
