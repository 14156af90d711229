"""How many loads of a thread are in flight at once in the kernels that read rows over the vocabulary.

A load from global memory names one of six scoreboards (bits 110 to 112 of the instruction), and the first instruction that
needs its result waits for that scoreboard (bits 116 to 121). So the loads between two such waits run at the same time. They
are counted along straight code: a jump or a barrier starts a new count.
"""

import re

LOADS = {0x981, 0x980}  # low 12 bits of an instruction: LDG, LD
JUMPS = {0x947, 0x94D, 0x941, 0x943, 0x944, 0x950, 0xB1D}  # BRA, EXIT, BSYNC, CALL, CALL, RET, BAR
NO_SCOREBOARD = 7
TOGETHER = 16  # kRowLoads in core/backend/cuda/kernels/law_space.h
# In how many places a kernel loads that many numbers together: one place for each pass over a row. The code of a pass
# occurs once for each call, because calls are inlined.
PLACES = {
    "Standardise": 2,
    "StandardisePieces": 1,
    "LargestOfRows": 1,
    "CutLevel": 1,
    "CutSearch": 2,
    "Race": 2,
    "Sample": 4,
    "Siblings": 5,
    "Accept": 40,
    "AcceptPaths": 10,
    "AcceptLongest": 19,
    "AcceptKSeq": 9,
    "AcceptMultiPath": 9,
    "PersistentKernel": 8,
}


def loads_together(code):
    """The sizes of the groups of loads between two waits or jumps, in the order of the code. `code`: pairs of 64-bit words."""
    places, count, waited_for = [], 0, 0  # waited_for: scoreboards of the loads in flight
    for low, high in code:
        if high >> 52 & 0x3F & waited_for or low & 0xFFF in JUMPS:
            places.append(count)
            count = waited_for = 0
        if low & 0xFFF in LOADS:
            count += 1
            scoreboard = high >> 46 & 7
            waited_for |= 1 << scoreboard if scoreboard != NO_SCOREBOARD else 0
    return [*places, count]


def problems(path, cubin):
    """What is wrong with the row kernels of a cubin (Cubin in check_gpu_code.py)."""
    for section in cubin.sections:
        match = re.search(r"^\.text\..*?\d(PersistentKernel|[A-Z][A-Za-z]*(?=Kernel))", section)
        if match and match.group(1) in PLACES:
            kernel = section.removeprefix(".text.")
            places = sum(count >= TOGETHER for count in loads_together(cubin.instructions(kernel)))
            if places < PLACES[match.group(1)]:
                yield (
                    f"{path}: sm_{cubin.architecture} {kernel}: {places} places with {TOGETHER} loads in flight, "
                    f"expected {PLACES[match.group(1)]}"
                )
