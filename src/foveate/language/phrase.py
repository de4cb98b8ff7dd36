"""What a phrase is made of: the thing itself, what it is like, and where it belongs.

"the dog's face" is a face, and it is part of a dog. Rules and lists of words find that, no model:

    >>> read("the woman's white hair")
    Phrase(text='woman white hair', noun='hair', attributes=('white',), place=Place(relation='part', of='woman'))
    >>> read("a pair of dark blue shoes").noun, read("a cup of coffee").noun
    ('shoes', 'cup of coffee')
    >>> read("the handle of the oven door").place.of.place
    Place(relation='part', of='oven')

What is notable
* A relation is read from the thing: noun - relation - of. "face part of dog", "cup on table", "held by the man".
* Where a question asks for something beside its noun ("what is the man holding?"), the noun is "" and the place says
  where the answer is: `held` by the man. For "who" the noun is "person".
* A lone phrase, "where is", "find" and "which" ask for the first thing: what follows is its place. A question for yes
  or no ("is there a dog on the couch?") asks for both, and so does a scene ("a man riding a horse").
* What no rule knows stays as it is: noun and text are the same. Words that are in no list are nouns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast

LONGEST, DEEPEST = 24, 8  # words of a phrase and places within places; longer texts are lists of words

# Where a thing is: noun - relation - of. The second line is of frames, "what is the man holding?".
Relation = Literal[
    "part", "on", "in", "under", "above", "beside", "left", "right", "behind", "before", "with",
    "held", "worn", "worn on head", "ridden", "eaten", "carried", "used", "seen", "supporting", "around",
]  # fmt: skip


@dataclass(frozen=True)
class Phrase:
    """A thing that a question names or asks for.

    Attributes:
        text: the phrase in words, as in `Wording.phrases`; of a frame the question: "what is the man holding".
        noun: the thing itself, "wheel" or "cup of coffee". Empty where the question asks which thing it is.
        attributes: what it is like, as said before it: ("red",), ("dark blue", "wooden").
        place: what it is part of, or where it is; None if nothing is said.
    """

    text: str
    noun: str
    attributes: tuple[str, ...] = ()
    place: Place | None = None


@dataclass(frozen=True, repr=False)
class Place:
    """Where a thing is: its relation to another one."""

    relation: Relation
    of: Phrase

    def __repr__(self) -> str:
        return f"Place(relation={self.relation!r}, of={self.of.text!r})"


class Span(NamedTuple):
    """A phrase, and the words [start, end) that it was made of."""

    phrase: str
    start: int
    end: int
    quoted: bool = False


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _table(lines: str) -> list[tuple[Relation, str]]:
    """Lines of "relation: words"."""
    rows = [line.partition(":") for line in lines.strip().splitlines()]
    return [(cast(Relation, relation.strip()), words) for relation, _, words in rows]


def _pairs(words: str) -> frozenset[tuple[str, str]]:
    return frozenset((first, second) for first, second in (pair.split() for pair in words.split(",")))


_ARTICLES = _set("a an the")
_COLOURS = _set(
    """
    red orange yellow green blue purple pink brown black white grey gray golden gold silver violet beige tan maroon
    navy teal turquoise olive khaki lavender magenta cyan scarlet crimson burgundy bronze copper blonde blond
    """
)
_SHADES = _set("dark light bright pale deep navy sky royal lime olive hot baby neon forest mint")
_SIZES = _set(
    "big small large little tiny huge giant tall short long wide narrow thick thin high low deep round square"
)
_QUALITIES = _set(
    """
    colorful colourful multicolored multicoloured rainbow transparent clear dark bright pale shiny reflective wooden
    wood metal metallic plastic leather brick stone glass paper cardboard rubber steel iron concrete ceramic wicker
    straw denim woolen wool cotton silk velvet knitted furry fluffy fuzzy marble bamboo tiled porcelain lace fur
    chrome striped checkered checked plaid floral dotted spotted patterned camouflage camo tie-dye tie-dyed flowered
    old young new elderly ancient antique vintage modern middle-aged teenage adult open closed empty full broken
    clean dirty wet dry muddy dusty rusty worn torn parked moving sliced chopped cut cooked fried grilled baked
    roasted toasted melted frozen fresh ripe rotten raw burnt burning lit unlit folded crumpled bald bearded smiling
    crying sleeping sunlit snowy sandy grassy rocky snow-covered cloudy sunny shaded blurry blurred tangled curly
    straight wavy shaggy hairy bushy bare naked shirtless barefoot pregnant fat skinny slim heavy soft hard sharp
    pointed pointy curved bent flat tilted hanging floating flying standing sitting lying running walking jumping
    painted carved decorated framed ornate fancy plain simple beautiful pretty cute ugly nice lovely funny strange
    weird cool front rear back left right upper lower top bottom inner outer middle central main other nearest
    closest farthest biggest smallest largest tallest shortest longest oldest youngest brightest darkest bigger
    smaller larger taller shorter longer older younger brighter darker lighter first second third last fourth
    leftmost rightmost topmost whole entire half single double same different electric digital portable dead live
    stuffed fake real artificial leafy leafless green-leaved dead bony crowded busy quiet calm choppy overcast rainy
    paved unpaved cracked peeling wild tame domestic female male
    floppy matching half-eaten glowing barking shining blooming
    """
)
_ATTRIBUTES = _COLOURS | _SIZES | _QUALITIES
_ENDINGS = _set(
    """
    colored coloured sleeved haired eyed shaped legged sized striped faced headed tailed old patterned covered
    skinned tall white black red blue green brown grey gray yellow pink orange framed winged wheeled bearded
    """
)
# Left out of noun and attributes: they count.
_COUNTS = _set(
    """
    one two three four five six seven eight nine ten eleven twelve dozen several many few more most fewer some all
    both other another various multiple numerous lot lots couple only
    """
)
_PATTERNS = _pairs(
    """
    polka dot,polka dotted,tie dye,tie dyed,stainless steel,animal print,leopard print,zebra print,snow covered,
    bright colored,brightly colored,brightly coloured,dark haired
    """
)
# Begin like an attribute and are one thing.
_FIXED = _pairs(
    """
    hot dog,hot dogs,hot tub,hot sauce,hot chocolate,hot air,top hat,top hats,side table,orange juice,red wine,white
    wine, green tea,black tea,black bear,black bears,polar bear,brown bear,brown bears,grizzly bear,black
    pepper,black board, white board,green beans,green bean,green onion,green onions,red onion,red cross,white
    house,high chair,high chairs, high heel,high heels,high school,high rise,square root,big ben,paper towel,paper
    towels,paper clip,paper clips, glass case,tin can,rubber duck,cotton candy,cotton ball,cotton swab,iron
    board,ironing board,gold fish,stone age, silver ware,silver medal,gold medal,bronze medal,rainbow flag,second
    hand,first aid,flat screen,flat bread,hard hat, hard hats,soft drink,soft drinks,wet suit,wet suits,dry
    dock,dead end,live stock,stuffed animal,stuffed animals, stuffed bear,stuffed toy,stuffed toys,running
    shoes,running shoe,walking stick,flying saucer,flying disc,cutting board, sleeping bag,sleeping bags,hanging
    basket,standing desk,painted lady,main course,main street,half pipe,single file, cool box,cool bag,electric
    guitar,electric guitars,fire hydrant,sweet potato,french fries,french toast,bell pepper, short cut,long
    board,long boards,round about,back pack,back packs,back yard,back drop,front yard,left over,bald eagle, black
    hole,blue jay,blue jays,blue jeans,blue cheese,brown rice,white rice,brown bread,white bread,bare feet, open
    sign,cut outs,other side,dry erase,clear sky,light bulb,full moon,half moon,wild life,wood chips,wood stove,
    wood burning,wind mill,stop sign,digital camera,digital clock
    """
) - _pairs("blue jeans,bare feet,clear sky,open sign,other side,glass case")  # fmt: skip
# "X of Y" is a Y: what one looks for is the Y.
_MEASURES = _set(
    """
    group groups pair pairs bunch bunches piece pieces pile piles row rows slice slices stack stacks crowd crowds
    herd herds flock flocks set sets line lines lot lots number couple cluster clusters collection variety bit bits
    loaf sheet sheets school pack packs heap strip strips chunk chunks handful dozen dozens swarm bundle bundles
    array range kind kinds type types sort sorts spread layer layers block blocks half halves drop drops patch
    patches litter pride hundreds team load series selection assortment trio duo quartet mound bouquet
    """
)
_KEEPS_ATTRIBUTES = _set(
    "pair pairs piece pieces slice slices sheet sheets strip strips bunch bundle bouquet chunk block"
)
# "X of Y" is one thing, if no "the" stands before Y.
_CONTAINERS = _set(
    """
    cup cups glass glasses bottle bottles bowl bowls mug mugs can cans plate plates jar jars box boxes bag bags
    bucket buckets basket baskets carton cartons jug pitcher pot pots tin vase vases tray trays tub tank tube packet
    crate crates barrel pan spoon spoonful dish dishes scoop scoops roll rolls shelf cart
    """
)
_DEPICTIONS = _set(
    """
    painting paintings statue statues drawing drawings sculpture portrait poster posters map maps model bust sketch
    print figurine figure symbol picture pictures photo photos photograph photographs image images reflection shadow
    """
)

# Wholes and their parts: "bicycle wheel" is a wheel of a bicycle, "tennis racket" is a racket. One line, one kind.
_CLOTHES = """
    hat cap helmet shirt t-shirt tshirt jacket coat dress skirt pants trousers shorts jeans shoes shoe boots boot
    socks sock gloves glove tie scarf suit vest uniform sweater hoodie sweatshirt blouse apron swimsuit bikini
    wetsuit sunglasses glasses goggles watch belt necklace earring earrings bracelet ring backpack robe gown sandals
    sneakers costume outfit clothes clothing camouflage jersey overalls headband wristband mask crown bandana beanie
    hood cape leggings tights kimono turban pajamas swimwear tuxedo heels stripes stockings raincoat
    """
_MADE_OF = tuple(
    (_set(wholes), _set(parts))
    for wholes, _, parts in (
        kind.partition(">")
        for kind in """
    dog cat horse cow sheep zebra giraffe elephant bear bird goat lion tiger monkey rabbit parrot owl eagle seagull
    pigeon swan goose deer pig donkey camel kitten puppy calf fox wolf squirrel penguin ostrich rhino hippo dolphin
    whale shark snake turtle frog butterfly peacock rooster bull lamb foal pony moose elk animal > head face ear
    ears eye eyes nose mouth leg legs foot feet neck tongue teeth hair arm arms hand hands finger fingers knee knees
    elbow shoulder shoulders chin chest back belly stomach lips beard mustache moustache wrist toes thumb forehead
    cheek cheeks eyebrows tail tails paw paws mane horn horns trunk tusk tusks wing wings beak feather feathers fur
    hoof hooves claw claws whiskers snout antlers body collar leash saddle stripes spots shell fin fins udder
    muzzle; man woman boy girl child kid baby person player rider skier surfer snowboarder skateboarder lady guy men
    women people toddler batter pitcher catcher > head face ear ears eye eyes nose mouth leg legs foot feet neck
    tongue teeth hair arm arms hand hands finger fingers knee knees elbow shoulder shoulders chin chest back belly
    stomach lips beard mustache moustache wrist toes thumb forehead cheek cheeks eyebrows; car bus truck van taxi
    bicycle bike motorcycle motorbike scooter train plane airplane aeroplane jet boat ship tractor cart wagon
    helicopter jeep suv trailer vehicle skateboard stroller suitcase pickup tram sailboat > wheel wheels tire tires
    tyre tyres door doors window windows windshield windscreen headlight headlights taillight taillights hood bumper
    engine wing wings tail propeller propellers mirror mirrors roof handlebar handlebars pedal pedals spokes fender
    grille mast masts sail sails deck hull cockpit handle handles; bicycle bike motorcycle motorbike scooter > seat
    saddle frame basket chain bell kickstand; chair table couch sofa bed desk bench stool cabinet oven stove
    refrigerator fridge microwave dresser toilet dishwasher wardrobe cupboard armchair nightstand drawer freezer
    door window furniture > leg legs arm arms drawer drawers handle handles knob knobs door doors seat headboard
    armrest lid backrest frame; cup mug pot pan kettle teapot jar bottle knife umbrella bag basket suitcase bucket
    jug pitcher hammer spoon fork racket toothbrush broom scissors purse box can > handle handles lid lids cap spout
    blade strap straps rim label neck cork top; clock > face hand hands dial; house building church barn hotel
    cottage castle tower skyscraper shed hut cabin temple school store shop restaurant > roof window windows door
    doors chimney wall walls steeple facade balcony entrance porch steps; tree palm oak pine > trunk trunks branch
    branches leaf leaves bark; flower rose tulip plant sunflower daisy > petal petals stem stems leaf leaves; shirt
    jacket coat dress blouse sweater jeans pants suit hoodie > collar sleeve sleeves pocket pockets button buttons
    zipper hood cuff cuffs hem; shoe boot sneaker > lace laces sole soles heel; laptop tv television monitor phone
    computer tablet cellphone > screen screens; laptop phone piano calculator remote > keys key keyboard button
    buttons; sink bathtub tub > faucet faucets tap taps drain; lamp > shade base; guitar violin > strings neck;
    bicycle car truck bus van motorcycle > lights
    """.split(";")
    )
)
_PART_OF = {
    part: frozenset().union(*(w for w, ps in _MADE_OF if part in ps)) for _, parts in _MADE_OF for part in parts
}
# Parts of anything: "top of a hill", "handle of door".
_PARTS = frozenset(_PART_OF) | _set(
    "edge corner end tip base rim side front back surface inside outside lid cover border"
)
_TWO_WORD_PARTS = _pairs(
    "license plate,number plate,side mirror,side mirrors,roof rack,exhaust pipe,steering wheel,seat belt,tail light,"
    "tail lights,head light,head lights,upper deck,lower deck,landing gear"
)  # fmt: skip
_WEARABLE = _set(_CLOTHES) | _COLOURS
_HEAD, _HANDS = _set("head hair heads"), _set("hand hands arm arms lap")

# Nouns in -ing; other words in -ing at the end of a phrase say what the thing does: "bus moving".
_NOUNS_ING = _set(
    """
    building clothing ring wing king string railing ceiling painting awning swing frosting icing crossing parking
    lightning pudding dressing stocking earring evening morning spring thing lettering writing drawing wedding
    bedding clearing opening seating topping dumpling duckling sling landing lighting covering siding roofing
    flooring fencing serving filling wrapping handwriting marking piping meeting gathering darling engraving carving
    molding stuffing crossing boxing wrestling camping
    gardening herring viking seedling sibling offspring bling ding sting fling
    keyring teething living dining wiring lining
    """
)
_NOUNS_ED = _set("hundred moped united biped allied purebred thoroughbred")
# Say something of the word before them: "the car parked".
_AFTER = _set("parked made covered filled mounted seated perched docked dressed surrounded decorated hung tied asleep")
# Say something of the word before them in "is the dog wet?".
_PREDICATES = (_COLOURS - {"orange", "tan", "lavender", "olive", "violet"}) | _set(
    """
    open closed empty full broken clean dirty wet dry muddy dusty rusty torn ripe unripe rotten raw cooked fried
    melted frozen fresh burnt bald pregnant tall big small large huge tiny old young new bright dark cloudy overcast
    sunny blurry curly crowded busy calm fake real alive dead asleep awake round square long short lit unlit happy
    sad angry striped wooden barefoot shiny
    """
)
# One thing, though "of" stands after a word that is a part elsewhere.
_WHOLE = _pairs(
    "body water,head lettuce,head broccoli,head cabbage,head garlic,ear corn,ears corn,leg lamb,wall bricks"
)
_ROOMS = _set("room restroom bathroom toilet store section")  # "the men's room" is one thing

_PREPOSITIONS: dict[str, Relation] = {
    preposition.strip(): relation
    for relation, prepositions in _table(
        """
        on: on, on top of, on the top of, at the top of, upon, onto, atop, across, on the front of, on the back of
        in: in, inside, inside of, within, into, among, amongst, amid, in the middle of, in the back of, out of
        in: in the corner of, in the center of, in the centre of, at the bottom of, on the bottom of
        under: under, below, beneath, underneath, hanging from, hung from, suspended from
        above: above, over
        beside: beside, next to, near, near to, by, close to, at, against, alongside, along, around, between
        beside: adjacent to, in between, surrounding, to the side of, on the side of, on either side of
        beside: tied to, chained to, attached to, fastened to, connected to
        beside: at the end of, at the side of, at the sides of, on both sides of, on the other side of
        left: left of, to the left of, on the left of, on the left side of, to the left side of
        right: right of, to the right of, on the right of, on the right side of, to the right side of
        behind: behind, in back of, at the back of
        before: before, in front of, in the front of, at the front of
        with: with
        part: of
        """
    )
    for preposition in prepositions.split(",")
}
# What somebody does, and where the answer is: "what is the man holding?". A word after the verb may change it.
_DONE: dict[str, Relation] = {
    verb: relation
    for relation, verbs in _table(
        """
        held: holding hold held grabbing gripping reading read raising lifting
        worn: wearing wear worn
        ridden: riding ride ridden driving drive surfing steering
        eaten: eating eat eaten drinking drink drunk biting chewing licking tasting grazing sipping
        carried: carrying carry carried transporting
        used: using use used playing play throwing throw catching catch hitting hit kicking kick swinging pulling
        used: pull pushing push touching touch cutting cut washing cooking cleaning writing typing petting brushing
        used: chasing herding feeding making drawing painting opening smelling sniffing working fixing preparing baking
        used: towing dragging spraying pouring stirring tossing bouncing balancing
        seen: reaching looking look watching watch staring facing seeing see pointing photographing gazing filming
        """
    )
    for verb in verbs.split()
}
_POSTURE = _set(
    """
    sitting standing lying laying resting leaning perched seated sleeping sat stood parked stacked piled placed
    located hanging hung mounted attached growing floating swimming stuck displayed shown written printed painted
    seen visible kept stored sit sits stand stands lie lies walking running jumping flying waiting crouching
    kneeling climbing relaxing napping skating skiing grazing posing playing working dining gathered surfing
    arranged out being tied
    """
)
_HOLDS = _set(
    """
    holding carrying wearing eating drinking using reading holds carries wears eats having has have playing throwing
    swinging hitting kicking catching touching flying pouring cutting pushing pulling petting feeding walking
    brushing washing
    """
)
_RIDES = _set("riding rides driving drives surfing")
# The place of what an agent leans on, stands in and so on, from the preposition after the verb.
_OTHER_SIDE: dict[Relation, Relation] = {
    "on": "supporting", "in": "around", "under": "above", "above": "under", "beside": "beside", "behind": "before",
    "before": "behind", "left": "right", "right": "left", "with": "used",
}  # fmt: skip

_DETERMINERS = _set(
    """
    a an the some any his her its their my your our this that these those all both each every one of
    """
)
_OWN = _set("his her its their whose")
_BE = _set("is are was were am be being been")
_SKIPPED = _BE | _set("do does did can could will would currently also now both all really probably just still")
_ASKS = ("what", "which", "who", "whom", "what's", "who's")
_HAVE_TWO_WORD_PARTS = frozenset().union(*(whole for whole, _ in _MADE_OF))
_KIND = _set("color colour colors colours kind kinds type types sort sorts brand style else of number")
_STATES = _set(
    "is are was were do does did has have had isn't aren't wasn't weren't doesn't don't didn't there why when if can't"
)
_HAVE, _PRONOUNS = _set("has have had"), _set("he she they it we you i")
_THOUGHT = _set("doing thinking feeling saying celebrating waiting wondering expecting happening going coming")
_THINGS = _set("thing things object objects item items something anything everything")
_DOES = _set("do does did")
_BEFORE_A_NOUN = [[word] for word in sorted(_ARTICLES | _OWN)]
_THAT = _set("that which who directly right")
_ENDS = _set(". ? ! ; : ( )")

_Item = str | int  # a word outside the phrases, or a phrase's number


def structure(words: Sequence[str], spans: Sequence[Span]) -> tuple[Phrase, ...]:
    """The structure of each phrase of a text, in order; of a frame it stands in the place of its agent or whole."""
    cores, tails = _split(words, spans)
    found = [Phrase(s.phrase, s.phrase) if s.quoted else _read(core) for s, core in zip(spans, cores, strict=True)]
    places = list(found)
    clauses = _clauses(words, spans, tails)
    for clause in clauses:
        _place(clause, found, places)
    out = [p if p.text == s.phrase else replace(p, text=s.phrase) for p, s in zip(places, spans, strict=True)]
    for i, (tail, span) in enumerate(zip(tails, spans, strict=True)):
        if tail and tail != ["like"] and not (tail[-1] in _DONE or words[span.end : span.end + 1] in _BEFORE_A_NOUN):
            out[i] = replace(out[i], attributes=(*out[i].attributes, " ".join(tail)))
    for clause in clauses:
        frame = _frame(clause, spans, places)
        if frame:
            for i in (item for item in clause if isinstance(item, int) and tails[item]):
                out[i] = replace(places[i], text=spans[i].phrase)  # what it does was the question's verb
            out[frame[0]] = frame[1]
    return tuple(out)


def read(phrase: str) -> Phrase:
    """The structure of one phrase without a question around it.

    >>> read("wheel of the red bicycle").place
    Place(relation='part', of='red bicycle')
    """
    words = phrase.lower().replace("’", "'").split()
    return _read(words[1:] if len(words) > 1 and words[0] in _ARTICLES else words)


def _text(words: Sequence[str]) -> str:
    """Words as they stand in a phrase: without articles and the signs of possession."""
    return " ".join(w.removesuffix("'s").removesuffix("'") for i, w in enumerate(words) if not i or w not in _ARTICLES)


def _read(words: Sequence[str]) -> Phrase:
    """The structure of the words of one phrase."""
    text = _text(words)
    if len(words) > LONGEST:
        return Phrase(text, text)
    of = words.index("of") if "of" in words[1:-1] else len(words)
    owners = [i for i in range(min(of, len(words) - 1)) if words[i].endswith(("'s", "s'")) and words[i + 1] != "of"]
    if owners and words[owners[-1] + 1] not in _ROOMS:
        owner = _read([*words[: owners[-1]], words[owners[-1]].removesuffix("'s").removesuffix("'")])
        return replace(_inside(_read(words[owners[-1] + 1 :]), Place("part", owner)), text=text)
    if of == len(words):
        return _read_simple(words)
    left, right = words[:of], words[of + 1 :]
    if left[-1] == "full" and len(left) > 1:
        return replace(_inside(_read_simple(left[:-1]), Place("with", _read(right))), text=text)
    article, head = right[0] if right[0] in _ARTICLES and len(right) > 1 else "", left[-1]
    of_what = _read(right[1:] if article else right)
    if head in _MEASURES:
        before = _read_simple(left).attributes if head in _KEEPS_ATTRIBUTES else ()
        return replace(of_what, text=text, attributes=(*before, *of_what.attributes))
    if len(left) == 1 and head in _ATTRIBUTES and head.endswith("est"):  # "the largest of the dogs"
        return replace(of_what, text=text, attributes=(head, *of_what.attributes))
    thing = _read_simple(left)
    contains = head in _CONTAINERS and article != "the"
    if head in _DEPICTIONS or contains or (head, right[-1]) in _WHOLE or (not article and head not in _PARTS):
        return Phrase(text, f"{thing.noun} of {of_what.text}", thing.attributes)
    return replace(_inside(thing, Place("part", of_what)), text=text)


def _depth(phrase: Phrase) -> int:
    return 1 + _depth(phrase.place.of) if phrase.place else 0


def _inside(phrase: Phrase, place: Place) -> Phrase:
    """The phrase, with a place for its outermost whole: "car door" and "the man's" make a door of a car of the man."""
    if phrase.place is None:
        return replace(phrase, place=place)
    return replace(phrase, place=replace(phrase.place, of=_inside(phrase.place.of, place)))


def _read_simple(words: Sequence[str]) -> Phrase:
    """The structure of words without "of" and possessives: attributes, a whole if any, the noun."""
    attributes, i, last = [], 0, len(words) - 1
    while i < last:
        pair = (words[i], words[i + 1])
        if pair in _FIXED or (pair in _TWO_WORD_PARTS and i + 1 == last):
            break
        if i + 1 < last and (pair in _PATTERNS or (pair[0] in _SHADES and pair[1] in _COLOURS)):
            attributes.append(" ".join(pair))
            i += 2
        elif words[i] in _COUNTS:
            i += 1
        elif _describes(words[i]):
            attributes.append(words[i])
            i += 1
        else:
            break
    rest = words[i:]
    cut = len(rest) - (2 if tuple(rest[-2:]) in _TWO_WORD_PARTS else 1)
    noun, whole = _text(rest), None
    if cut > 0 and rest[cut - 1] in (_PART_OF.get(rest[-1], ()) if cut == len(rest) - 1 else _HAVE_TWO_WORD_PARTS):
        noun, whole = _text(rest[cut:]), _read_simple(rest[:cut])
    return Phrase(_text(words), noun, tuple(attributes), Place("part", whole) if whole else None)


def _describes(word: str) -> bool:
    """Whether a word before a noun says what it is like: a known one, "long-sleeved", "frosted"."""
    if word in _ATTRIBUTES:
        return True
    if word.endswith("ed"):
        return len(word) > 4 and not word.endswith(("eed", "bed", "shed")) and word not in _NOUNS_ED
    return "-" in word and word.rpartition("-")[2] in _ENDINGS


def _split(words: Sequence[str], spans: Sequence[Span]) -> tuple[list[list[str]], list[list[str]]]:
    """-> (the words of each phrase, those at its end that say what the thing does: "bus moving")."""
    cores, tails = [], []
    first = words[0] if words else ""
    asks = "is" if first in _BE else "does" if first in _ASKS and not _DOES.isdisjoint(words) else ""
    for span in spans:
        core, tail = list(words[span.start : span.end]), list[str]()
        while len(core) > 1 and not span.quoted and _says(core[-1], core[-2], asks):
            tail.insert(0, core.pop())
        cores.append(core)
        tails.append(tail)
    return cores, tails


def _says(word: str, before: str, asks: str) -> bool:
    """Whether a word at the end of a phrase says what the thing does or is like: "the bus moving"."""
    if before in _ATTRIBUTES or before in _ARTICLES or before == "of" or before.endswith(("'s", "s'")):
        return False
    if asks == "is" and word in _PREDICATES:
        return True
    return word == "like" or is_state(word) or (asks == "does" and word in _DONE)


def is_state(word: str) -> bool:
    """Whether a word after "is" says how a thing is there, and names nothing: "parked", "leaning"."""
    return word in _AFTER or is_doing(word)


def is_doing(word: str) -> bool:
    """Whether a word says what something does, "pulling", and names no thing as "building" does."""
    return word.endswith("ing") and len(word) > 4 and word not in _NOUNS_ING


def _clauses(words: Sequence[str], spans: Sequence[Span], tails: Sequence[Sequence[str]]) -> list[list[_Item]]:
    """The text as clauses of words and numbers of phrases; what a thing does is a word of the clause."""
    out: list[list[_Item]] = [[]]
    end = 0
    for i, span in enumerate(spans):
        _extend(out, words[end : span.start])
        out[-1] += [i, *tails[i]]
        end = span.end
    _extend(out, words[end:])
    return out


def _extend(clauses: list[list[_Item]], words: Sequence[str]) -> None:
    for word in words:
        if word in _ENDS:
            clauses.append([])
        else:
            clauses[-1].append(word)


def _place(clause: Sequence[_Item], found: Sequence[Phrase], places: list[Phrase]) -> None:
    """Writes into `places` what the words between two phrases say of the first: "the cup next to the laptop"."""
    at = [k for k, item in enumerate(clause) if isinstance(item, int)]
    states = bool(clause) and clause[0] in _STATES
    for n in range(len(at) - 2, -1, -1):
        first, second = int(clause[at[n]]), int(clause[at[n + 1]])
        gap = [str(item) for item in clause[at[n] + 1 : at[n + 1]]]
        if _owns(found[first], gap, alone=n == 0):
            places[second] = _inside(places[second], Place("part", found[first]))
            if gap[-1] == "whose":
                continue
        if gap and _depth(places[second]) >= DEEPEST:
            continue
        relation = _link(gap, definite=at[n] > 0 and clause[at[n] - 1] in ("the", "that", "this", "those", "these"))
        if relation is None or (states and relation != "part"):
            continue
        if found[first].place is not None and " of " not in found[first].text:
            continue  # "the man's hand on the wheel": not a man on a wheel, and a hand has one place
        if relation == "in" and places[second].noun.split()[-1] in _WEARABLE:
            relation = "with"
        of = found[second] if gap[-1] in _OWN else places[second]
        places[first] = _inside(places[first], Place(relation, of))


def _owns(first: Phrase, gap: Sequence[str], alone: bool) -> bool:
    """Whether "his", "its" or "whose" between two phrases means the first: "the dog and its tail"."""
    if not gap or gap[-1] not in _OWN or gap[0] == "of" or not (alone or gap[-1] == "whose"):
        return False
    return gap[-1] == "whose" or _link(gap, definite=False) in (None, "with")


def _link(gap: Sequence[str], definite: bool) -> Relation | None:
    """What the words between two phrases say: ["sitting", "on", "the"] -> "on"."""
    end = len(gap)
    while end and gap[end - 1] in _DETERMINERS and gap[end - 1] != "of":
        end -= 1
    words = gap[:end]
    while words:
        if len(words) == 1 and definite and (words[0] in _HOLDS or words[0] in _DONE):
            return "on" if words[0] in _RIDES else "with" if words[0] in _HOLDS else "beside"
        relation = _PREPOSITIONS.get(" ".join(words))
        if relation or not _passes(words[0]):
            return relation
        words = words[1:]
    return None


def _passes(word: str) -> bool:
    """Words that may stand between a thing and the preposition of its place: "that is sitting"."""
    doing = is_doing(word) and word not in _DONE
    return word in _BE or word in _POSTURE or word in _THAT or word in _AFTER or doing


def _preposition(clause: Sequence[_Item], i: int) -> tuple[Relation, int] | None:
    """The longest preposition that begins at i -> (its relation, where it ends)."""
    for end in range(min(i + 5, len(clause)), i, -1):
        said = clause[i:end]
        if all(isinstance(item, str) for item in said):
            relation = _PREPOSITIONS.get(" ".join(map(str, said)))
            if relation and relation != "part":
                return relation, end
    return None


def _frame(clause: Sequence[_Item], spans: Sequence[Span], places: Sequence[Phrase]) -> tuple[int, Phrase] | None:
    """-> (the phrase in whose place it stands, the thing asked for), for questions whose answer has a place only."""
    asks = next((i for i, item in enumerate(clause) if item in _ASKS or item in _THINGS), None)
    if asks is None or (asks and isinstance(clause[asks - 1], int)):  # "the woman who is sitting"
        return None
    asked, i = clause[asks], asks + 1
    number, i = _asked_noun(clause, i) if asked in ("what", "which") else (None, i)
    place = _frame_place(clause, i, places)
    if place is None:
        return None
    agent, where = place
    if number is not None:
        return None if places[number].place == where else (number, _inside(places[number], where))
    text = " ".join(_say(item, spans) for item in clause[asks:])
    return agent, Phrase(text, "person" if str(asked).startswith("who") else "", (), where)


def _asked_noun(clause: Sequence[_Item], i: int) -> tuple[int | None, int]:
    """The noun after "what" or "which" ("what animal is ..."), and where the rest begins."""
    k = i
    while k < len(clause) and (clause[k] in _KIND or (clause[k] in _DETERMINERS and "of" in clause[i:k])):
        k += 1
    if k < len(clause) - 1 and isinstance(clause[k], int):
        return int(clause[k]), k + 1
    return None, k if k < len(clause) and clause[k] in _SKIPPED else i


def _frame_place(clause: Sequence[_Item], i: int, places: Sequence[Phrase]) -> tuple[int, Place] | None:
    """-> (the phrase that the place is of, the place), from the words after "what", "which animal" and the like."""
    start = i = _skip(clause, i)
    while i < len(clause) and clause[i] in _DETERMINERS:
        i += 1
    if i < len(clause) and isinstance(clause[i], int):
        return _done_by(clause, i, places)
    if i < len(clause) and (clause[i] in _THINGS or clause[i] in _PRONOUNS):  # "what is the thing on", "is she holding"
        start = i + 1
        while start < len(clause) and clause[i] in _PRONOUNS and clause[start] in _DONE:
            start += 1
    found, i = _preposition(clause, start), start
    while not found and i < len(clause) and isinstance(clause[i], str) and _passes(str(clause[i])):
        i += 1
        found = _preposition(clause, i)
    of = _object(clause, found[1]) if found else None
    if found and of is not None and (i == start or clause[i - 1] not in _DONE or clause[i - 1] in _POSTURE):
        return of, Place(_worn(found[0], clause, of, places), places[of])
    return _doing(clause, start, places)


def _skip(clause: Sequence[_Item], i: int) -> int:
    """Where the auxiliaries after "what" end; "has" right after it is the verb ("who has the ball?")."""
    while i < len(clause) and (clause[i] in _SKIPPED or (clause[i] in _HAVE and clause[i - 1] not in _ASKS)):
        i += 1
    return i


def _worn(relation: Relation, clause: Sequence[_Item], of: int, places: Sequence[Phrase]) -> Relation:
    return "with" if relation == "in" and "who" in clause and places[of].noun.split()[-1] in _WEARABLE else relation


def _object(clause: Sequence[_Item], i: int) -> int | None:
    while i < len(clause) and clause[i] in _DETERMINERS:
        i += 1
    item = clause[i] if i < len(clause) else None
    return item if isinstance(item, int) else None


def _done_by(clause: Sequence[_Item], i: int, places: Sequence[Phrase]) -> tuple[int, Place] | None:
    """ "What is the man holding?": the agent is the phrase at i."""
    agent = int(clause[i])
    i += 1
    following = next((k for k in range(i, len(clause)) if isinstance(clause[k], int)), None)
    if (
        following is not None
        and following + 1 < len(clause)
        and _link([str(w) for w in clause[i:following]], definite=False)
    ):
        after = clause[following + 1]
        if isinstance(after, str) and (after in _DONE or _passes(after)):  # "the man in the red shirt holding"
            i = following + 1
    while i < len(clause) and clause[i] in _SKIPPED:
        i += 1
    if i == len(clause) or isinstance(clause[i], int):
        return None
    verb, of = str(clause[i]), places[agent]
    if verb in ("have", "has", "got"):
        nouns = {places[x].noun for x in clause[i + 1 :] if isinstance(x, int)}
        relation: Relation = "held" if nouns & _HANDS else "worn on head" if nouns & _HEAD else "with"
        return agent, Place(relation, of)
    j = i if _preposition(clause, i) else i + 1
    preposition = _preposition(clause, j)
    ends = preposition is not None and preposition[1] == len(clause)
    done = _DONE.get(verb)
    if done == "worn":
        on_head = any(places[x].noun in _HEAD for x in clause[j:] if isinstance(x, int))
        return agent, Place("worn on head" if on_head else "worn", of)
    if done:
        return agent, Place("used" if done == "eaten" and clause[j : j + 1] in (["from"], ["out"]) else done, of)
    if ends and preposition and (verb in _POSTURE or j == i or is_doing(verb)):
        return agent, Place(_OTHER_SIDE[preposition[0]], of)
    if is_doing(verb) and verb not in _POSTURE | _THOUGHT and i + 2 >= len(clause):  # "what is the woman knitting?"
        return agent, Place("used", of)
    return None


def _doing(clause: Sequence[_Item], i: int, places: Sequence[Phrase]) -> tuple[int, Place] | None:
    """ "Who is holding the umbrella?", "what is pulling the cart?": the answer is at the object."""
    if i >= len(clause) or not isinstance(clause[i], str):
        return None
    verb, j = str(clause[i]), i + 1
    if verb not in _HOLDS | _RIDES and verb not in _DONE:
        return None
    passive = verb in ("held", "worn", "ridden", "eaten", "carried", "used", "driven", "pulled", "pushed")
    if j < len(clause) and clause[j] in ("by", "with", "at", "from", "on", "in", "out", "up"):
        passive = passive and clause[j] == "by"
        j += 1
    of = _object(clause, j)
    if of is None:
        return None
    if passive:
        return of, Place(_DONE.get(verb, "used"), places[of])
    relation: Relation = "on" if verb in _RIDES else "with" if verb in _HOLDS else "beside"
    return of, Place(relation, places[of])


def _say(item: _Item, spans: Sequence[Span]) -> str:
    return item if isinstance(item, str) else spans[item].phrase
