"""Words whose maps a phrase needs: its own, and what may be held, ridden or worn where only a place is named."""

from __future__ import annotations

from foveate.language.phrase import Phrase

# Words for what may be there, asked beside the place of a frame.
_HELD = (
    "held object,cell phone,umbrella,bottle,cup,book,banana,tennis racket,baseball bat,frisbee,wine glass,fork,knife,"
    "sandwich,toothbrush,remote,bag,sports ball,camera,pizza,donut,hot dog,apple,teddy bear,scissors,spoon,paper,flag,"
    "leash,cake,laptop,carrot,broccoli,orange,kite,handbag,suitcase,skateboard,surfboard,baseball glove,bowl,basket"
)
_ANYTHING = (
    "person,dog,cat,bird,cup,bowl,vase,bottle,book,remote,laptop,keyboard,mouse,cell phone,clock,teddy bear,"
    "potted plant,bag,backpack,suitcase,helmet,hat,pillow,basket,cardboard,plate,cake,pizza,sandwich,apple,banana,"
    "spoon,fork,knife,chair,bench,umbrella,sports ball,frisbee,paper,lamp,painting,flower,bicycle,skateboard,"
    "surfboard,skis,motorcycle,car"
)
FRAMES: dict[str, tuple[str, ...]] = {
    relation: tuple(words.split(","))
    for relation, words in {
        "held": _HELD,
        "carried": _HELD,
        "used": _HELD,
        "eaten": "pizza,sandwich,cake,apple,banana,hot dog,donut,broccoli,carrot,orange,food,grass,leaf,bread,"
        "plant,bowl",
        "ridden": "bicycle,motorcycle,horse,elephant,skateboard,surfboard,snowboard,skis,boat,car,cow,scooter",
        "worn": "shirt,jacket,pants,dress,skirt,hat,shoes,tie,glasses,suit,sweater,shorts,helmet",
        "worn on head": "hat,helmet,cap,glasses,headband,sunglasses",
        "supporting": "chair,bench,couch,bed,table,floor,grass,road,skateboard,surfboard,snow,earth,rug,sidewalk,sand,"
        "snowboard,skis,suitcase,toilet,water,branch,counter,field,car,motorcycle,horse,blanket,pillow,shelf",
        "around": "vase,plant pot,bowl,cup,water,basket,bottle,pot,sink,bathtub,grass,field,snow",
    }.items()
}
ANYTHING = tuple(_ANYTHING.split(","))
HANDS = ("hand", "mouth")  # where people and animals hold and eat


def words_of(phrase: Phrase) -> tuple[str, ...]:
    """Every text whose map `compose` needs for this phrase, without repetition."""
    out = [phrase.noun] if phrase.noun else []
    if phrase.place is not None:
        relation = phrase.place.relation
        if not phrase.noun:
            out += FRAMES.get(relation, ANYTHING)
            out += HANDS if relation in ("held", "carried", "used", "eaten") else ()
            out += ("head",) if relation == "worn on head" else ()
        out += words_of(phrase.place.of)
    return tuple(dict.fromkeys(out))


def is_plain(phrase: Phrase) -> bool:
    """Whether a phrase is a thing and nothing else: then its own map is all there is."""
    return phrase.place is None and not phrase.attributes and bool(phrase.noun)
