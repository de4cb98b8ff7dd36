"""The fonts of the pages: files of Debian packages, named one by one; nothing is committed.

    apt-get install fonts-dejavu-core fonts-liberation fonts-lato fonts-open-sans fonts-roboto-unhinted \\
        fonts-cantarell fonts-inconsolata fonts-crosextra-carlito fonts-crosextra-caladea fonts-paratype \\
        fonts-freefont-ttf fonts-courier-prime fonts-cabin fonts-b612 fonts-roboto-slab
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from PIL import ImageFont

from foveate.core.errors import MissingExtraError

FOLDER = Path("/usr/share/fonts")
TRAINED = {  # package -> (regular, bold)
    "fonts-dejavu-core": (
        ("truetype/dejavu/DejaVuSans.ttf", "truetype/dejavu/DejaVuSans-Bold.ttf"),
        ("truetype/dejavu/DejaVuSerif.ttf", "truetype/dejavu/DejaVuSerif-Bold.ttf"),
        ("truetype/dejavu/DejaVuSansMono.ttf", "truetype/dejavu/DejaVuSansMono-Bold.ttf"),
    ),
    "fonts-liberation": (
        ("truetype/liberation/LiberationSans-Regular.ttf", "truetype/liberation/LiberationSans-Bold.ttf"),
        ("truetype/liberation/LiberationSerif-Regular.ttf", "truetype/liberation/LiberationSerif-Bold.ttf"),
        ("truetype/liberation/LiberationMono-Regular.ttf", "truetype/liberation/LiberationMono-Bold.ttf"),
    ),
    "fonts-lato": (("truetype/lato/Lato-Regular.ttf", "truetype/lato/Lato-Bold.ttf"),),
    "fonts-open-sans": (("truetype/open-sans/OpenSans-Regular.ttf", "truetype/open-sans/OpenSans-Bold.ttf"),),
    "fonts-roboto-unhinted": (
        ("truetype/roboto/unhinted/RobotoTTF/Roboto-Regular.ttf", "truetype/roboto/unhinted/RobotoTTF/Roboto-Bold.ttf"),
    ),
    "fonts-cantarell": (("opentype/cantarell/Cantarell-Regular.otf", "opentype/cantarell/Cantarell-Bold.otf"),),
    "fonts-inconsolata": (("truetype/inconsolata/Inconsolata.otf", "truetype/inconsolata/Inconsolata.otf"),),
    "fonts-crosextra-carlito": (("truetype/crosextra/Carlito-Regular.ttf", "truetype/crosextra/Carlito-Bold.ttf"),),
    "fonts-crosextra-caladea": (("truetype/crosextra/Caladea-Regular.ttf", "truetype/crosextra/Caladea-Bold.ttf"),),
    "fonts-paratype": (
        ("truetype/paratype/PTS55F.ttf", "truetype/paratype/PTS75F.ttf"),
        ("truetype/paratype/PTF55F.ttf", "truetype/paratype/PTF75F.ttf"),
    ),
    "fonts-freefont-ttf": (("truetype/freefont/FreeSans.ttf", "truetype/freefont/FreeSansBold.ttf"),),
}
HELD_BACK = {
    "fonts-cabin": (("opentype/cabin/Cabin-Regular.otf", "opentype/cabin/Cabin-Bold.otf"),),
    "fonts-b612": (("opentype/b612/B612-Regular.otf", "opentype/b612/B612-Bold.otf"),),
    "fonts-roboto-slab": (("opentype/roboto/slab/RobotoSlab-Regular.otf", "opentype/roboto/slab/RobotoSlab-Bold.otf"),),
    "fonts-courier-prime": (
        ("opentype/courier-prime/Courier Prime.otf", "opentype/courier-prime/Courier Prime Bold.otf"),
    ),
}
PACKAGES = {
    file: package for table in (TRAINED, HELD_BACK) for package, pairs in table.items() for p in pairs for file in p
}


def faces(held_back: bool) -> tuple[tuple[str, str], ...]:
    """(regular, bold) of each face."""
    return tuple(pair for pairs in (HELD_BACK if held_back else TRAINED).values() for pair in pairs)


@lru_cache(maxsize=512)
def font(file: str, size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """A font of a file below FOLDER; "" is Pillow's own, for tests.

    Raises:
        MissingExtraError: the file is not there.
    """
    if not file:
        return ImageFont.load_default(size)
    path = FOLDER / file
    if not path.is_file():
        raise MissingExtraError(
            f"no font {path}", expected=f"Debian's package {PACKAGES[file]}", fix=f"apt-get install {PACKAGES[file]}"
        )
    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)
