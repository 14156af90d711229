#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/model/files/stored_tensor.h"

namespace speclab {

/// Reads the tensors of a safetensors file, in the order of their data. The file has 8 bytes of header
/// length, a JSON header and the data. `file` must outlive the result; `name` is for messages. Throws Error
/// for a file that breaks the format's rules (https://huggingface.co/docs/safetensors): lengths beyond the
/// file, a header that is not one JSON object, offsets that contradict the shape, and data that overlaps, has
/// holes, or does not end with the file. Also throws for a header of more than 100,000,000 bytes, and for
/// more than 65,536 tensors, 8 dimensions, 4,096 entries of metadata or 1 MiB of one text.
std::vector<StoredTensor> read_safetensors(std::span<const std::byte> file, const std::string& name);

}  // namespace speclab
