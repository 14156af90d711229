#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

/// Lists the layers that a layer-skip draft leaves out (Draft & Verify: Zhang et al. 2024) and reads the file
/// that `speclab optimize layers` writes. A layer is skipped with both its attention and its feed-forward
/// part. A forward of a part of the model (LayerPart::only) runs whole layers, so the paper's finer choice,
/// which skips the two parts separately, does not exist here.
namespace speclab {

/// Returns the layers of `layers` that stay when `skip` is left out. Throws Error, which names `where`,
/// unless the numbers of `skip` ascend strictly, are among `layers`, and leave at least one layer.
std::vector<int> layers_without(std::span<const int> layers, std::span<const int> skip,
                                const std::string& where);

/// Returns every second layer, without the first and the last one: a set to skip when none was searched for.
/// Of two layers, returns the second one. Throws Error, which names `where`, for fewer than two layers.
std::vector<int> every_second_layer(std::span<const int> layers, const std::string& where);

/// A skip file has {"format": "speclab skip 1", "layers": [...], "skip": [...], ...}. "layers" lists the
/// layers that the model runs and "skip" those that a draft leaves out. Further members say where the set
/// comes from; reading ignores them.
inline constexpr const char* kSkipFormat = "speclab skip 1";

/// Reads "skip" of a skip file. Throws Error, which names the file, when it cannot be read, is no skip file,
/// or lists other layers than `layers`, the layers that the model runs.
std::vector<int> read_skip_file(const std::filesystem::path& path, std::span<const int> layers);

}  // namespace speclab
