"""Reads metadata and tensors of a GGUF file with NumPy alone. Reads the tensor types F32, Q4_1 and Q8_0, which the target has, and F16.

Layout: magic, version, counts, then key/value pairs, tensor descriptions (name, sizes from the innermost, type, offset), and the data,
which begin at the next multiple of the alignment (the GGUF specification of ggml). Integers are little-endian.
"""

import struct

import numpy as np

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
BLOCK_BYTES = {0: (1, 4), 1: (1, 2), 3: (32, 20), 8: (32, 34)}  # type: (weights per block, bytes per block)


class GgufFile:
    def __init__(self, path):
        self.bytes = np.memmap(path, dtype=np.uint8, mode="r")
        self.at = 4
        if bytes(self.bytes[:4]) != b"GGUF":
            raise ValueError(f"{path} is not a GGUF file")
        self._number("<I")  # version
        tensors, fields = self._number("<Q"), self._number("<Q")
        self.fields = {}
        for _ in range(fields):
            key = self._text()
            self.fields[key] = self._value(self._number("<I"))
        self.places = {}
        for _ in range(tensors):
            name = self._text()
            sizes = [self._number("<Q") for _ in range(self._number("<I"))]
            self.places[name] = (sizes[::-1], self._number("<I"), self._number("<Q"))
        alignment = self.fields.get("general.alignment", 32)
        self.data = -(-self.at // alignment) * alignment

    def _number(self, form):
        size = struct.calcsize(form)
        (value,) = struct.unpack(form, self.bytes[self.at : self.at + size].tobytes())
        self.at += size
        return value

    def _text(self):
        size = self._number("<Q")
        self.at += size
        return self.bytes[self.at - size : self.at].tobytes().decode("utf-8", "replace")

    def _value(self, kind):
        if kind == STRING:
            return self._text()
        if kind == ARRAY:
            inner, count = self._number("<I"), self._number("<Q")
            return [self._value(inner) for _ in range(count)]
        return self._number(SCALARS[kind])

    def tensor(self, name):
        """A tensor as float32, outermost dimension first."""
        shape, kind, offset = self.places[name]
        weights, size = BLOCK_BYTES[kind]
        blocks = int(np.prod(shape)) // weights
        raw = self.bytes[self.data + offset : self.data + offset + blocks * size].reshape(blocks, size)
        if kind in (0, 1):
            values = raw.view("<f4" if kind == 0 else "<f2").astype(np.float32)
        elif kind == 8:  # scale, 32 signed bytes
            values = raw[:, 2:].view(np.int8) * raw[:, :2].copy().view("<f2").astype(np.float32)
        else:  # scale, least value, 16 bytes: first the low halves of all bytes, then the high halves
            scale, least = raw[:, :2].copy().view("<f2"), raw[:, 2:4].copy().view("<f2")
            codes = np.concatenate((raw[:, 4:] & 15, raw[:, 4:] >> 4), axis=1)
            values = codes * scale.astype(np.float32) + least.astype(np.float32)
        return values.reshape(shape)
