from torchvision.transforms.v2.functional import InterpolationMode as InterpolationMode
