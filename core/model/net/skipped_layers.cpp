#include "core/model/net/skipped_layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/measure/run_result.h"

namespace speclab {
namespace {

using nlohmann::json;

std::string listed(std::span<const int> numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); }

/// Reads the list of layer numbers with this name from a skip file.
std::vector<int> layer_numbers(const json& file, const char* name, const std::string& where) {
  const auto found = file.find(name);
  const bool list =
      found != file.end() && found->is_array() && std::ranges::all_of(*found, [](const json& entry) {
        return entry.is_number_unsigned() && entry <= 10'000;
      });
  if (!list) {
    throw Error({fmt::format("{}: /{}", where, name), found == file.end() ? "nothing" : found->dump(),
                 "a list of layer numbers", "Make a skip file with speclab optimize layers."});
  }
  return found->get<std::vector<int>>();
}

}  // namespace

std::vector<int> layers_without(std::span<const int> layers, std::span<const int> skip,
                                const std::string& where) {
  const auto there = [&](int layer) { return std::ranges::find(layers, layer) != layers.end(); };
  const bool ascends = std::ranges::adjacent_find(skip, std::greater_equal<>()) == skip.end();
  if (!ascends || !std::ranges::all_of(skip, there)) {
    throw Error(
        {where, listed(skip),
         fmt::format("ascending numbers, each once, of the {} layers that the model runs", layers.size()),
         ""});
  }
  std::vector<int> kept;
  std::ranges::copy_if(layers, std::back_inserter(kept),
                       [&](int layer) { return std::ranges::find(skip, layer) == skip.end(); });
  if (kept.empty()) {
    throw Error({where, fmt::format("all {} layers", layers.size()), "a draft that runs at least one layer",
                 "Skip fewer layers."});
  }
  return kept;
}

std::vector<int> every_second_layer(std::span<const int> layers, const std::string& where) {
  if (layers.size() < 2) {
    throw Error({where, fmt::format("a model that runs {} layers", layers.size()), "at least 2 layers",
                 "Use a deeper model."});
  }
  if (layers.size() == 2) return {layers.back()};
  std::vector<int> skip;
  for (std::size_t i = 1; i + 1 < layers.size(); i += 2) skip.push_back(layers[i]);
  return skip;
}

std::vector<int> read_skip_file(const std::filesystem::path& path, std::span<const int> layers) {
  const std::string where = path.string();
  const json file = read_json_file(path);
  if (!file.is_object() || file.value("format", json()) != kSkipFormat) {
    throw Error({where, "a file of another format", fmt::format("\"format\": \"{}\"", kSkipFormat),
                 "Make a skip file with speclab optimize layers."});
  }
  const std::vector<int> of = layer_numbers(file, "layers", where), skip = layer_numbers(file, "skip", where);
  if (!std::ranges::equal(of, layers)) {
    throw Error({fmt::format("{}: /layers", where), listed(of),
                 fmt::format("the target's layers {}", listed(layers)),
                 "Search the layers of this target with speclab optimize layers."});
  }
  return skip;
}

}  // namespace speclab
