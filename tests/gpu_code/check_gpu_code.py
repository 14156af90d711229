#!/usr/bin/env python3
"""Reads the machine code of the kernels in object files and fails when it is not what they are written for.

    check_gpu_code.py OBJECT...

For sm_80 and sm_90: every kernel is there; none has a stack, so nothing is spilled (EIATTR_FRAME_SIZE, the STACK of cuobjdump
--dump-resource-usage); the linear kernels multiply with HMMA.16816.F32.BF16, load weights (and activations for few rows) with
LDG.E.128, and copy those of many rows with LDGSTS.E.128; they have no more registers than their blocks on an SM are planned for;
attention multiplies with HMMA too and loads keys and values with LDG.E.128. The persistent kernel has the products and loads of
all that run in it, and registers for a block of 256 threads.
On sm_90 every kernel but the persistent one waits for the launch before it (ACQBULK, griddepcontrol.wait) before it touches global
memory, and lets the next launch in (PREEXIT) only after that. Linear kernels first load the weights of all blocks of inputs that
are in flight, and nothing else. On sm_80 no kernel waits.
And there is PTX for later architectures. The toolkit's disassembler may be absent, so the cubins (ELF) are read here; the
bits of the instructions are those that `cuobjdump -sass` prints. Objects must hold them uncompressed (nvcc --no-compress).
"""

import re
import struct
import sys

EM_CUDA = 190
FRAME_SIZE, REGISTERS = 0x11, 0x2F  # attributes in .nv.info
LDG, HMMA, LDGSTS = 0x981, 0x23C, 0xFAE  # low 12 bits of an instruction
WAIT, LET_IN = 0x82E, 0x82D  # ACQBULK, PREEXIT
# LDG, STG, LD, ST, LDGSTS, ATOMG, REDG: what reads and writes global memory
GLOBAL = (LDG, 0x986, 0x980, 0x985, LDGSTS, 0x9A8, 0x9A3, 0x9A6, 0x98E)
JUMPS = (0x947, 0x949, 0x94A, 0x943, 0x944, 0x94D, 0x94E, 0x950)  # BRA, BRX, JMP, JMX, CALL, EXIT, RET
CONSTANT, STREAMED = (
    1 << 15,
    1 << 22,
)  # of the upper half of a load: read-only for the assembler (LDG.CONSTANT); leaves L1 alone (LDG.NA)
WIDE = 6  # bits 73..75 of a load: 16 bytes
M16N8K16_F32_BF16 = 0x41800  # bits 72..82 of a product; 0x01800 is fp16, 0x41000 is m16n8k8
ARCHITECTURES = (80, 90)
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
    "Sample",
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


def order_problems(name, kernel, code):
    """What is wrong with the order of waiting, letting the next launch in, and accesses, in a kernel for sm_90."""
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
    ahead = int(re.findall(r"ILi\d+ELi(\d+)E", kernel)[0])
    wanted = ahead * (4 if name == "LinearMany" else 2)
    weights = [high for operation, high in accesses if operation == LDG and high & STREAMED and high >> 9 & 7 == WIDE]
    if len(weights) != wanted or len(accesses) != wanted:
        yield f"{len(weights)} loads of weights and {len(accesses) - len(weights)} other accesses before the wait, not {wanted} and 0"


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
                code = cubin.instructions(kernel)
                if cubin.architecture == 90 and name != "Persistent":
                    for problem in order_problems(name, kernel, code):
                        yield f"{what}: {problem}"
                elif any(low & 0xFFF in (WAIT, LET_IN) for low, _ in code):
                    yield f"{what}: waits for the launch before it"
                if name not in ("LinearFew", "LinearMany", "AttentionSplits", "Persistent"):
                    continue
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
