#!/usr/bin/env python3
"""Reads the machine code of the kernels in object files and fails when it is not what they are written for.

    check_gpu_code.py OBJECT...

For sm_80 and sm_90: every kernel is there; none has a stack, so nothing is spilled (EIATTR_FRAME_SIZE, the STACK of cuobjdump
--dump-resource-usage); the linear kernels multiply with HMMA.16816.F32.BF16, load weights (and activations for few rows) with
LDG.E.128, and copy those of many rows with LDGSTS.E.128; they have no more registers than their blocks on an SM are planned for;
attention multiplies with HMMA too and loads keys and values with LDG.E.128. The persistent kernel has the products and loads of
all that run in it, registers for a block of 256 threads, and a limited size. The kernels of rows over the vocabulary load many
numbers at once (row_loads.py).
And there is PTX for later architectures. The toolkit's disassembler may be absent, so the cubins (ELF) are read here; the
bits of the instructions are those that `cuobjdump -sass` prints. Objects must hold them uncompressed (nvcc --no-compress).
"""

import re
import struct
import sys

import row_loads

EM_CUDA = 190
FRAME_SIZE, REGISTERS = 0x11, 0x2F  # attributes in .nv.info
LDG, HMMA, LDGSTS = 0x981, 0x23C, 0xFAE  # low 12 bits of an instruction
WIDE = 6  # bits 73..75 of a load: 16 bytes
M16N8K16_F32_BF16 = 0x41800  # bits 72..82 of a product; 0x01800 is fp16, 0x41000 is m16n8k8
ARCHITECTURES = (80, 90)
# Bytes of machine code of the persistent kernel. It is the sum of the kernels that it can run: half of it are the seven forms
# of linear_few, then come race and sample, the laws, and attention with 30 to 80 KB each. More code means more misses in the
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
    "Sample",
    "Race",
    "Siblings",
    "Accept",
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
        """The SM number: in the second byte of the flags since ABI version 8, in the first before."""
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


def cubins(data):
    at = data.find(b"\x7fELF", 1)
    while at >= 0:
        if struct.unpack_from("<H", data, at + 18)[0] == EM_CUDA:
            yield Cubin(data[at:])
        at = data.find(b"\x7fELF", at + 1)


def problems(objects):
    seen = {architecture: set() for architecture in ARCHITECTURES}
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
                if "10LinearFree" in kernel:  # its instances of the two kernels
                    seen[cubin.architecture].add("LinearFree")
                if values.get(FRAME_SIZE, -1) != 0:
                    yield f"{what}: {values.get(FRAME_SIZE)} bytes of stack with {values.get(REGISTERS)} registers; registers are spilled"
                if name not in ("LinearFew", "LinearMany", "AttentionSplits", "Persistent"):
                    continue
                code = cubin.instructions(kernel)
                loads = [high >> 9 & 7 for low, high in code if low & 0xFFF == LDG]
                products = sum(low & 0xFFF == HMMA and high & 0x7FF00 == M16N8K16_F32_BF16 for low, high in code)
                if name == "AttentionSplits":  # a block of 32 dimensions of the keys, 64 of the values
                    if loads.count(WIDE) < 4 + 8 or products < 16 + 32:
                        yield f"{what}: {loads.count(WIDE)} loads of 16 bytes, {products} matrix products"
                    continue
                if name == "Persistent":  # seven linear layers, and attention
                    if loads.count(WIDE) < 5 * 6 * 2 + 2 * 4 * 2 + 12 or products < 5 * 2 + 2 * 4 + 48:
                        yield f"{what}: {loads.count(WIDE)} loads of 16 bytes, {products} matrix products"
                    if values.get(REGISTERS, 256) > 255:
                        yield f"{what}: {values.get(REGISTERS)} registers"
                    if 16 * len(code) > PERSISTENT_BYTES:
                        yield f"{what}: {16 * len(code)} bytes of code, expected at most {PERSISTENT_BYTES}"
                    continue
                rows, ahead = (int(number) for number in re.findall(r"ILi(\d+)ELi(\d+)E", kernel)[0])
                many = name == "LinearMany"
                if loads.count(WIDE) < ahead * (4 if many else 2 + rows):
                    yield f"{what}: {loads.count(WIDE)} loads of 16 bytes"
                if products < 2 * rows * (2 if many else 1):
                    yield f"{what}: {products} matrix products"
                if many and not any(low & 0xFFF == LDGSTS for low, _ in code):
                    yield f"{what}: activations are not copied to shared memory"
                if values.get(REGISTERS, 256) > (255 if many else 128):  # two blocks of 256 threads for few rows
                    yield f"{what}: {values.get(REGISTERS)} registers"
    for architecture, names in seen.items():
        for name in KERNELS:
            if name not in names:
                yield f"sm_{architecture}: no kernel {name}"
    if not ptx:
        yield "no PTX for sm_90 and later"


if __name__ == "__main__":
    found = list(problems(sys.argv[1:]))
    print("\n".join(found) if found else "gpu code: ok")
    sys.exit(1 if found else 0)
