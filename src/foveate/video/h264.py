"""What an H.264 stream says about its references: enough to know whether motion vectors point at the picture before.

Source: ITU-T H.264 (08/2021), 7.3.1 (NAL units), 7.3.2.1.1 (sequence parameter sets). PyAV shows neither the number of
reference frames nor nal_ref_idc.
"""

from __future__ import annotations

from collections.abc import Iterator

SLICES = (1, 5)
PARAMETERS = 7
CHROMA_PROFILES = (44, 83, 86, 100, 110, 118, 122, 128, 134, 135, 138, 139, 244)


class Bits:
    """The bits of a NAL unit, read from the front. Raises IndexError or ValueError where there are no more."""

    def __init__(self, content: bytes) -> None:
        self._bits = "".join(f"{byte:08b}" for byte in content.replace(b"\0\0\3", b"\0\0"))
        self._at = 0

    def take(self, count: int) -> int:
        """An unsigned number of `count` bits."""
        self._at += count
        if self._at > len(self._bits):
            raise IndexError("no more bits")
        return int(self._bits[self._at - count : self._at], 2)

    def golomb(self) -> int:
        """An unsigned Exp-Golomb number."""
        zeros = self._bits.index("1", self._at) - self._at
        self._at += zeros
        return self.take(zeros + 1) - 1

    def signed(self) -> int:
        """A signed Exp-Golomb number."""
        code = self.golomb()
        return (code + 1) // 2 if code % 2 else -(code // 2)


def one_progressive_reference(parameters: bytes) -> bool:
    """Whether a sequence parameter set (a NAL unit) allows one reference frame, and whole frames only."""
    try:
        bits = Bits(parameters[1:])
        profile = bits.take(8)
        bits.take(16)  # constraints, level
        bits.golomb()  # its number
        if profile in CHROMA_PROFILES:
            chroma = bits.golomb()
            if chroma == 3:
                bits.take(1)
            bits.golomb(), bits.golomb()  # depths
            bits.take(1)
            if bits.take(1):
                for number in range(12 if chroma == 3 else 8):
                    if bits.take(1):
                        _skip_scaling(bits, 16 if number < 6 else 64)
        bits.golomb()  # log2_max_frame_num
        order = bits.golomb()
        if order == 0:
            bits.golomb()
        elif order == 1:
            bits.take(1)
            bits.signed(), bits.signed()
            for _ in range(bits.golomb()):
                bits.signed()
        references = bits.golomb()
        bits.take(1)  # gaps in frame_num
        bits.golomb(), bits.golomb()  # width, height
        return references == 1 and bits.take(1) == 1  # frame_mbs_only
    except (IndexError, ValueError):
        return False


def _skip_scaling(bits: Bits, length: int) -> None:
    last = following = 8
    for _ in range(length):
        if following:
            following = (last + bits.signed()) % 256
        last = following or last


def length_bytes(extradata: bytes) -> int:
    """How many bytes give the length of each NAL unit of a packet (avcC, in MP4 and Matroska); 0: start codes do."""
    return (extradata[4] & 3) + 1 if len(extradata) > 6 and extradata[0] == 1 else 0


def header_units(extradata: bytes) -> list[bytes]:
    """The sequence parameter sets that come with a stream's header."""
    if not length_bytes(extradata):
        return [unit for unit in units(extradata, 0) if unit[0] & 31 == PARAMETERS]
    found, at = [], 6
    for _ in range(extradata[5] & 31):
        end = at + 2 + int.from_bytes(extradata[at : at + 2], "big")
        found.append(extradata[at + 2 : end])
        at = end
    return [unit for unit in found if unit]


def units(content: bytes, length: int) -> Iterator[bytes]:
    """The NAL units of a packet, up to its first slice. What is cut off or damaged ends it."""
    at = 0
    while at < len(content):
        if length:
            start, end = at + length, at + length + int.from_bytes(content[at : at + length], "big")
        else:
            found = content.find(b"\0\0\1", at)
            if found < 0:
                return
            start, end = found + 3, content.find(b"\0\0\1", found + 3)
            end = len(content) if end < 0 else end
        if start >= min(end, len(content)):
            at = max(end, start)
            continue
        yield content[start:end]
        if content[start] & 31 in SLICES:
            return
        at = end


def breaks_trust(content: bytes, length: int) -> bool:
    """Whether a packet holds parameters with more references, or a picture that the next one does not refer to."""
    for unit in units(content, length):
        kind = unit[0] & 31
        if kind == PARAMETERS and not one_progressive_reference(unit):
            return True
        if kind in SLICES and not unit[0] & 0x60:  # nal_ref_idc: a temporal layer, or a B-frame
            return True
    return False
