#include "core/model/files/gguf_types.h"

#include <algorithm>
#include <iterator>

namespace speclab {
namespace {

/// Numbers and names from GGMLQuantizationType in the package `gguf` 0.19.
struct Entry {
  std::uint32_t number;
  GgmlType type;
};

constexpr Entry kEntries[] = {
    {0, {"F32", TensorType::kF32}},
    {1, {"F16", TensorType::kF16}},
    {2, {"Q4_0", TensorType::kQ4_0}},
    {3, {"Q4_1", TensorType::kQ4_1}},
    {6, {"Q5_0", TensorType::kQ5_0}},
    {7, {"Q5_1", TensorType::kQ5_1}},
    {8, {"Q8_0", TensorType::kQ8_0}},
    {9, {"Q8_1", {}}},
    {10, {"Q2_K", TensorType::kQ2K}},
    {11, {"Q3_K", TensorType::kQ3K}},
    {12, {"Q4_K", TensorType::kQ4K}},
    {13, {"Q5_K", TensorType::kQ5K}},
    {14, {"Q6_K", TensorType::kQ6K}},
    {15, {"Q8_K", {}}},
    {16, {"IQ2_XXS", {}}},
    {17, {"IQ2_XS", {}}},
    {18, {"IQ3_XXS", {}}},
    {19, {"IQ1_S", {}}},
    {20, {"IQ4_NL", TensorType::kIq4Nl}},
    {21, {"IQ3_S", {}}},
    {22, {"IQ2_S", {}}},
    {23, {"IQ4_XS", {}}},
    {28, {"F64", {}}},
    {29, {"IQ1_M", {}}},
    {30, {"BF16", TensorType::kBf16}},
    {34, {"TQ1_0", {}}},
    {35, {"TQ2_0", {}}},
    {39, {"MXFP4", {}}},
};

}  // namespace

GgmlType ggml_type(std::uint32_t number) {
  const auto* found = std::ranges::find(kEntries, number, &Entry::number);
  return found == std::end(kEntries) ? GgmlType{nullptr, {}} : found->type;
}

}  // namespace speclab
