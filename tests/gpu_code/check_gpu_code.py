#!/usr/bin/env python3
"""Reads the machine code of the kernels in object files, and fails if it lacks a property that the kernels rely on.

    check_gpu_code.py ARCHITECTURES OBJECT...

ARCHITECTURES lists the GPUs that the objects were compiled for, for example 80-real,90-real,90-virtual. The names are those of
CMAKE_CUDA_ARCHITECTURES. The list must contain 80-real or 90-real.

The code for sm_80 is checked if 80-real is in the list, and the code for sm_90 if 90-real is. Every kernel is there; none has a stack,
so nothing is spilled (EIATTR_FRAME_SIZE, the STACK of cuobjdump --dump-resource-usage); the linear kernels multiply with
HMMA.16816.F32.BF16 and stream their weights (see below); they have no more registers than their blocks on an SM are planned for;
attention multiplies with HMMA too and loads keys and values with LDG.E.128. The persistent kernel has the products and loads of all
kernels that run in it, registers for a block of 256 threads, and a limited size. The kernels of rows over the vocabulary load many
numbers at once (row_loads.py).

Weights stream if a warp waits only for the oldest weights and leaves the others in flight. Loads into registers return in any order,
so a wait for a scoreboard is a wait for all loads that use it. Groups of LDGSTS complete in order, and DEPBAR.LE SBx, N leaves N
of them in flight. So in every loop of products of a linear layer:
- weights come by LDGSTS.E.128 and not by LDG, at least not by several LDG on one scoreboard,
- every wait for groups leaves at least one in flight,
- no other load between the first weights and the end of the loop (the row and its norm, activations) uses the scoreboard of the
  weights, because it would wait for them; and nothing waits there for all groups,
- activations that LDG loads are requested one wait for the ring before they are used; their latency passes in that wait.

On sm_90 every kernel but the persistent one waits for the launch before it (ACQBULK, griddepcontrol.wait) before it touches global
memory, and lets the next launch begin (PREEXIT) only after that. Linear kernels first load the weights of all blocks of inputs that are
in flight, and nothing else. On sm_80 no kernel waits. With 90-virtual, the objects also contain PTX for later architectures.

The toolkit's disassembler may be absent, so this script reads the cubins (ELF) itself. The bits of the instructions are those that
`cuobjdump -sass` prints. Objects must hold the cubins uncompressed (nvcc --no-compress).
"""

import re
import struct
import sys

import row_loads

EM_CUDA = 190
FRAME_SIZE, REGISTERS = 0x11, 0x2F  # attributes in .nv.info
# low 12 bits of an instruction
LDG, HMMA, LDGSTS, LDGDEPBAR, DEPBAR = 0x981, 0x23C, 0xFAE, 0x9AF, 0x91A
BRA, EXIT, CALL = 0x947, 0x94D, 0x944
WAIT, LET_IN = 0x82E, 0x82D  # ACQBULK, PREEXIT
# LDG, STG, LD, ST, LDGSTS, ATOMG, REDG: the instructions that read and write global memory
GLOBAL = (LDG, 0x986, 0x980, 0x985, LDGSTS, 0x9A8, 0x9A3, 0x9A6, 0x98E)
JUMPS = (0x947, 0x949, 0x94A, 0x943, 0x944, 0x94D, 0x94E, 0x950)  # BRA, BRX, JMP, JMX, CALL, EXIT, RET
CONSTANT = 1 << 15  # of the upper half of a load: read-only for the assembler (LDG.CONSTANT)
WIDE = 6  # bits 73..75 of a load: 16 bytes
STREAMED = 0x30  # bits 68..69 of a load: the data does not stay in L1; only weights are loaded in this way
M16N8K16_F32_BF16 = 0x41800  # bits 72..82 of a product; 0x01800 is fp16, 0x41000 is m16n8k8
FEW_AHEAD, MANY_AHEAD = 8, 6  # kFewAhead, kManyAhead in core/backend/cuda/kernels/linear/linear.h
ARCHITECTURES = (80, 90)
# Bytes of machine code of the persistent kernel. It is the sum of the kernels that it can run. Half of it is the seven forms
# of linear_few. Race and sample, the laws, and attention have 30 to 80 KB each. More code means more misses in the
# instruction caches.
PERSISTENT_BYTES = 540_000
KERNELS = (
    "LinearFew",
    "LinearMany",
    "LinearFree",
    "Norm",
    "Activate",
    "Elementwise",
    "RoundRows",
    "PackWeights",
    "Gather",
    "RopeStore",
    "MoveSlots",
    "CopyKv",
    "AttentionSplits",
    "AttentionSum",
    "CopyRows",
    "FillColumns",
    "UnpackWeights",
    "RoundPlain",
    "ReadAll",
    "MultiplyAll",
    "Standardise",
    "StandardisePieces",
    "LargestOfRows",
    "CutLevel",
    "CutSearch",
    "Sample",
    "Race",
    "Siblings",
    "Accept",
    "AcceptPaths",
    "AcceptLongest",
    "AcceptKSeq",
    "AcceptMultiPath",
    "MoveAccepted",
    "Persistent",
)


class Cubin:
    def __init__(self, data):
        at, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
        names = struct.unpack_from("<H", data, 62)[0]
        self.flags = struct.unpack_from("<I", data, 48)[0]
        headers = [struct.unpack_from("<IIQQQQIIQQ", data, at + 64 * i) for i in range(count)]
        text = lambda table, offset: data[
            headers[table][4] + offset : data.index(b"\0", headers[table][4] + offset)
        ].decode()
        self.sections = {text(names, h[0]): data[h[4] : h[4] + h[5]] for h in headers if h[1] != 8}
        symbols = next((h for h in headers if h[1] == 2), None)
        self.symbols = []
        if symbols:
            for offset in range(symbols[4], symbols[4] + symbols[5], 24):
                self.symbols.append(text(symbols[6], struct.unpack_from("<I", data, offset)[0]))

    @property
    def architecture(self):
        """The SM number. It is in the second byte of the flags since ABI version 8, and in the first byte before."""
        return self.flags >> 8 & 0xFF if self.flags >> 8 & 0xFF in ARCHITECTURES else self.flags & 0xFF

    def attributes(self):
        """{kernel: {attribute: value}} for those of .nv.info that are a symbol and a number."""
        data, at, found = self.sections.get(".nv.info", b""), 0, {}
        while at + 4 <= len(data):
            form, attribute, size = struct.unpack_from("<BBH", data, at)
            at += 4
            if form != 4:
                continue
            if size == 8:
                symbol, value = struct.unpack_from("<II", data, at)
                found.setdefault(self.symbols[symbol], {})[attribute] = value
            at += size
        return found

    def instructions(self, kernel):
        code = self.sections[".text." + kernel]
        return [struct.unpack_from("<QQ", code, at) for at in range(0, len(code) - 15, 16)]


def write_barrier(high):
    """The scoreboard that the result of an instruction releases; 7: none."""
    return high >> 46 & 7


def groups_left(low):
    """N of DEPBAR.LE SBx, N."""
    return low >> 38 & 0x3F


def branch_target(index, low, high, architecture):
    """Index of the instruction to which the branch at `index` goes."""
    if architecture < 90:
        offset, bits = low >> 34 | (high & 0x3FFFF) << 30, 48
    else:
        offset, bits = low >> 16 & 0xFF | low >> 34 << 8 | (high & 0x3FFFF) << 38, 56
    return index + 1 + (offset - (1 << bits if offset >> (bits - 1) else 0)) // 4


def product_loops(code, architecture):
    """[first, last] of every innermost loop with matrix products, in the order of the code."""
    found = []
    for last, (low, high) in enumerate(code):
        if low & 0xFFF != BRA:
            continue
        first = branch_target(last, low, high, architecture)
        words = [word & 0xFFF for word, _ in code[first : last + 1]]
        # Code for lanes that have diverged lies behind the end of the kernel, and branches back from there.
        if HMMA in words and EXIT not in words:
            found.append((first, last))
    return sorted(a for a in found if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in found))


def stream_problems(code, loops):
    """What is wrong with the weights in `loops`, which are all loops of linear layers in the code."""
    begin = 0
    for number, (first, last) in enumerate(loops):
        where = f"loop {number + 1} of {len(loops)}"
        body = code[first : last + 1]
        loaded = [write_barrier(high) for low, high in body if low & 0xFFF == LDG and high & STREAMED]
        if len(loaded) > len(set(loaded)):
            yield f"{where}: {len(loaded)} loads of weights wait on {len(set(loaded))} scoreboards; a wait for the oldest is a wait for all"
        copies = sum(low & 0xFFF == LDGSTS and high >> 9 & 7 == WIDE for low, high in body)
        if copies < 2:
            yield f"{where}: {copies} copies of 16 bytes of weights to shared memory"
        left = [groups_left(low) for low, _ in body if low & 0xFFF == DEPBAR]
        if not left or min(left) == 0:
            yield f"{where}: the waits for copies leave {left} groups in flight"
        of_weights = [
            i
            for i in range(begin, last + 1)
            if code[i][0] & 0xFFF == LDGDEPBAR or code[i][0] & 0xFFF == LDG and code[i][1] & STREAMED
        ]
        boards = {write_barrier(code[i][1]) for i in of_weights}
        sharing = [
            i
            for i in range(of_weights[0] if of_weights else last, last + 1)
            if code[i][0] & 0xFFF == LDG and not code[i][1] & STREAMED and write_barrier(code[i][1]) in boards
        ]
        if sharing:
            yield f"{where}: {len(sharing)} loads of the row or of activations, the first at {16 * sharing[0]:#x}, wait on a scoreboard of the weights"
        groups = [i for i in of_weights if code[i][0] & 0xFFF == LDGDEPBAR]
        mask = sum({1 << write_barrier(code[i][1]) for i in groups})
        drains = [i for i in range(groups[0] if groups else last, last) if code[i][1] >> 52 & 0x3F & mask]
        if drains:
            yield f"{where}: {len(drains)} instructions, the first at {16 * drains[0]:#x}, wait for all groups"
        # Activations are loaded a whole block of inputs ahead: the next wait for the ring comes before the wait for them.
        boards = {write_barrier(high) for low, high in body if low & 0xFFF == LDG and not high & STREAMED}
        for board in boards:
            fresh = False
            for low, high in body + body:
                if fresh and high >> 52 & 1 << board and low & 0xFFF != CALL:  # only diverged lanes execute calls
                    yield f"{where}: activations are waited for where they are loaded (scoreboard {board})"
                    break
                if low & 0xFFF == LDG and write_barrier(high) == board:
                    fresh = True
                elif low & 0xFFF == DEPBAR:
                    fresh = False
        begin = last + 1


def cubins(data):
    at = data.find(b"\x7fELF", 1)
    while at >= 0:
        if struct.unpack_from("<H", data, at + 18)[0] == EM_CUDA:
            yield Cubin(data[at:])
        at = data.find(b"\x7fELF", at + 1)


def order_problems(name, code):
    """What is wrong in a kernel for sm_90 with the order of its wait, its accesses, and its start of the next launch."""
    operations = [low & 0xFFF for low, _ in code]
    if WAIT not in operations:
        yield "does not wait for the launch before it"
        return
    wait = operations.index(WAIT)
    if LET_IN in operations[:wait]:
        yield "lets the next launch in before it waits"
    if LET_IN not in operations[wait:]:
        yield "does not let the next launch in"
    before = [(low & 0xFFF, high) for low, high in code[:wait]]
    accesses = [access for access in before if access[0] in GLOBAL]
    if any(low & 0xFFF == LDG and high & CONSTANT for low, high in code):
        yield "a load that the assembler may move before the wait"
    if name not in ("LinearFew", "LinearMany"):
        if accesses:
            yield f"{len(accesses)} accesses to global memory before the wait"
        if any(operation in JUMPS for operation, _ in before):
            yield "a branch before the wait"
        return
    wanted = 4 * MANY_AHEAD if name == "LinearMany" else 2 * FEW_AHEAD
    weights = sum(operation == LDGSTS and high >> 9 & 7 == WIDE for operation, high in accesses)
    if weights != wanted or len(accesses) != wanted:
        yield f"{weights} copies of weights and {len(accesses) - weights} other accesses before the wait, not {wanted} and 0"


def problems(wanted, objects):
    """Yields a text for each problem of these objects. wanted: the set of the names of architectures, such as "90-real"."""
    seen = {architecture: set() for architecture in ARCHITECTURES if f"{architecture}-real" in wanted}
    if not seen:
        yield f"got {sorted(wanted)}, expected 80-real, 90-real or both"
    ptx = False
    for path in objects:
        with open(path, "rb") as file:
            data = file.read()
        ptx = ptx or b".target sm_90" in data
        for cubin in cubins(data):
            if cubin.architecture not in seen:
                yield f"{path}: code for sm_{cubin.architecture}"
                continue
            yield from row_loads.problems(path, cubin)
            for kernel, values in cubin.attributes().items():
                if ".text." + kernel not in cubin.sections:
                    continue
                match = re.search(r"\d([A-Z][A-Za-z]*)Kernel", kernel)
                name = match.group(1) if match else kernel
                what = f"sm_{cubin.architecture} {kernel}"
                seen[cubin.architecture].add(name)
                if "10LinearFree" in kernel:  # instances of the two linear kernels for LinearFree
                    seen[cubin.architecture].add("LinearFree")
                if values.get(FRAME_SIZE, -1) != 0:
                    yield f"{what}: {values.get(FRAME_SIZE)} bytes of stack with {values.get(REGISTERS)} registers; registers are spilled"
                code = cubin.instructions(kernel)
                if (
                    cubin.architecture == 90 and name != "Persistent" and match
                ):  # without a match: the trial of a loop (gpu_loop.cu)
                    for problem in order_problems(name, code):
                        yield f"{what}: {problem}"
                elif any(low & 0xFFF in (WAIT, LET_IN) for low, _ in code):
                    yield f"{what}: waits for the launch before it"
                if name not in ("LinearFew", "LinearMany", "AttentionSplits", "Persistent"):
                    continue
                loads = [high >> 9 & 7 for low, high in code if low & 0xFFF == LDG]
                copies = [high >> 9 & 7 for low, high in code if low & 0xFFF == LDGSTS]
                products = sum(low & 0xFFF == HMMA and high & 0x7FF00 == M16N8K16_F32_BF16 for low, high in code)
                if name == "AttentionSplits":  # a block of 32 dimensions of the keys, 64 of the values
                    if loads.count(WIDE) < 4 + 8 or products < 16 + 32:
                        yield f"{what}: {loads.count(WIDE)} loads of 16 bytes, {products} matrix products"
                    continue
                loops = product_loops(code, cubin.architecture)
                if name == "Persistent":  # seven linear layers, and attention
                    # Linear layers are the loops that have weights.
                    loops = [
                        (first, last)
                        for first, last in loops
                        if any(
                            low & 0xFFF == LDGSTS or low & 0xFFF == LDG and high & STREAMED
                            for low, high in code[first : last + 1]
                        )
                    ]
                    if len(loops) < 7 or copies.count(WIDE) < 7 * 2 * (FEW_AHEAD + 1) or products < 7 * 2 + 2 * 2 + 48:
                        yield f"{what}: {len(loops)} loops of linear layers, {copies.count(WIDE)} copies of 16 bytes, {products} matrix products"
                    if loads.count(WIDE) < 12:
                        yield f"{what}: {loads.count(WIDE)} loads of 16 bytes"
                    if values.get(REGISTERS, 256) > 255:
                        yield f"{what}: {values.get(REGISTERS)} registers"
                    yield from (f"{what}: {problem}" for problem in stream_problems(code, loops))
                    if 16 * len(code) > PERSISTENT_BYTES:
                        yield f"{what}: {16 * len(code)} bytes of code, expected at most {PERSISTENT_BYTES}"
                    continue
                rows = int(re.search(r"ILi(\d+)E", kernel).group(1))
                many = name == "LinearMany"
                if not loops:
                    yield f"{what}: no loop of matrix products"
                yield from (f"{what}: {problem}" for problem in stream_problems(code, loops))
                if copies.count(WIDE) < (4 * (MANY_AHEAD + 1) + 1 if many else 2 * (FEW_AHEAD + 1)):
                    yield f"{what}: {copies.count(WIDE)} copies of 16 bytes to shared memory"
                if products < 2 * rows * (2 if many else 1):
                    yield f"{what}: {products} matrix products"
                if values.get(REGISTERS, 256) > (255 if many else 128):  # two blocks of 256 threads for few rows
                    yield f"{what}: {values.get(REGISTERS)} registers"
    for architecture, names in seen.items():
        for name in KERNELS:
            if name not in names:
                yield f"sm_{architecture}: no kernel {name}"
    if "90-virtual" in wanted and not ptx:
        yield "no PTX for sm_90 and later"


if __name__ == "__main__":
    found = list(problems(set(sys.argv[1].split(",")), sys.argv[2:]))
    print("\n".join(found) if found else "gpu code: ok")
    sys.exit(1 if found else 0)
