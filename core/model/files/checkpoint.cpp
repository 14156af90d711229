#include "core/model/files/checkpoint.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "core/model/files/checkpoint_layout.h"

namespace speclab {

struct Checkpoint::Impl {
  std::filesystem::path path;
  CheckpointParts parts;
  std::vector<TensorInfo> infos;
  std::unordered_map<std::string, std::size_t> index;  // canonical name -> index in parts.tensors
  std::optional<Inflation> twin;

  void make_index() {
    for (const CheckpointTensor& of_file : parts.tensors) {
      index.emplace(of_file.info.name, infos.size());
      infos.push_back(of_file.info);
    }
  }

  const CheckpointTensor& tensor(std::string_view name) const {
    const auto found = index.find(std::string(name));
    SPECLAB_CHECK(found != index.end(), "{} has no tensor {}", path.string(), name);
    return parts.tensors[found->second];
  }

  /// The name of the tensor in the original model.
  std::string original(std::string_view name) const {
    return twin ? twin->original_tensor(name) : std::string(name);
  }

  /// Reads rows [begin, end) of a tensor. Calls read(type, first byte, number of weights, out) for each run
  /// of weights that is contiguous in the file.
  template <typename T, typename Read>
  void read_rows(std::string_view name, std::int64_t begin, std::int64_t end, T* out, Read read) const {
    const CheckpointTensor& from = tensor(name);
    SPECLAB_CHECK(0 <= begin && begin <= end && end <= from.rows, "rows {} to {} of {}, which has {}", begin,
                  end, name, from.rows);
    const TensorTypeInfo& type = tensor_type_info(from.type);
    const std::int64_t row_bytes = from.stored_columns / type.block * type.block_bytes;
    const Selection& part = from.selection;
    if (from.info.shape.size() == 1 && !part.whole()) {  // a vector: select elements
      for (std::int64_t i = 0; begin < end && i < from.columns; i += part.run(i, from.columns - i)) {
        read(from.type, from.data + part.stored(i) * type.block_bytes, part.run(i, from.columns - i),
             out + i);
      }
      return;
    }
    if (part.transposed) {  // a run of the wanted rows is a run of columns in every row of the file
      std::vector<T> run(static_cast<std::size_t>(end - begin));
      for (std::int64_t row = begin, count = 0; row < end; row += count) {
        count = part.run(row, end - row);
        for (std::int64_t k = 0; k < from.columns; ++k) {
          read(from.type, from.data + k * row_bytes + part.stored(row) * type.block_bytes, count, run.data());
          for (std::int64_t i = 0; i < count; ++i)
            out[(row - begin + i) * from.columns + k] = run[static_cast<std::size_t>(i)];
        }
      }
      return;
    }
    if (from.interleaved_heads == 0) {
      for (std::int64_t row = begin, count = 0; row < end; row += count, out += count * from.columns) {
        count = part.run(row, end - row);
        read(from.type, from.data + part.stored(row) * row_bytes, count * from.columns, out);
      }
      return;
    }
    // llama.cpp's converter has written row s * head_dim/2 + j of a head as row 2 j + s (s = 0 or 1).
    const std::int64_t head_dim = from.rows / from.interleaved_heads, half = head_dim / 2;
    for (std::int64_t row = begin; row < end; ++row, out += from.columns) {
      const std::int64_t head = row / head_dim, i = row % head_dim;
      const std::int64_t file_row = head * head_dim + 2 * (i % half) + i / half;
      read(from.type, from.data + part.stored(file_row) * row_bytes, from.columns, out);
    }
  }
};

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

Checkpoint Checkpoint::open(const std::filesystem::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  std::error_code ignored;  // if the path cannot be checked, opening it as a file gives the error
  impl->parts = std::filesystem::is_directory(path, ignored) ? open_huggingface_directory(path)
                                                             : open_gguf_file(MappedFile::open(path));
  impl->make_index();
  return Checkpoint(std::move(impl));
}

Checkpoint Checkpoint::open_layers(const std::filesystem::path& file, const ModelConfig& config,
                                   const std::string& layer_names) {
  SPECLAB_CHECK(config.bare && config.layers > 0, "{} layers, bare {}", config.layers, config.bare);
  auto impl = std::make_unique<Impl>();
  impl->path = file;
  impl->parts = open_layers_file(MappedFile::open(file), config, layer_names);
  impl->make_index();
  return Checkpoint(std::move(impl));
}

void Checkpoint::inflate(const InflateShape& shape) {
  Inflation twin(config(), shape, impl_->path.string());
  std::vector<TensorInfo> infos;
  const auto add = [&](const TensorInfo& from, std::string name, bool added) {
    std::vector<std::int64_t> shape_of = twin.shape(name);
    if (added) {
      infos.push_back({std::move(name), {}, std::string("generated"), std::move(shape_of), 0});
    } else {
      std::string type = shape_of == from.shape ? from.type : fmt::format("{} inflated", from.type);
      infos.push_back({std::move(name), from.file_name, std::move(type), std::move(shape_of), from.bytes});
    }
  };
  constexpr std::string_view kFirst = "layers.0.";
  bool layers_done = false;
  for (const TensorInfo& info : impl_->infos) {
    if (!info.name.starts_with("layers.")) {
      add(info, info.name, false);
      continue;
    }
    for (int layer = 0; !layers_done && layer < twin.config().layers; ++layer) {
      for (const TensorInfo& of_first : impl_->infos) {
        if (!of_first.name.starts_with(kFirst)) continue;
        std::string name =
            fmt::format("layers.{}.{}", layer, std::string_view(of_first.name).substr(kFirst.size()));
        bool added = false;
        const auto from = impl_->index.find(twin.original_tensor(name, &added));
        add(from == impl_->index.end() ? of_first : impl_->infos[from->second], std::move(name), added);
      }
    }
    layers_done = true;
  }
  impl_->twin = std::move(twin);
  impl_->infos = std::move(infos);
}

const std::filesystem::path& Checkpoint::path() const { return impl_->path; }
const ModelConfig& Checkpoint::config() const {
  return impl_->twin ? impl_->twin->config() : impl_->parts.config;
}
bool Checkpoint::has(std::string_view tensor) const { return impl_->index.contains(impl_->original(tensor)); }

void Checkpoint::read_bf16(std::string_view tensor, std::int64_t begin, std::int64_t end, Bf16* out) const {
  const auto read = [this](std::string_view name, std::int64_t from, std::int64_t to, Bf16* rows) {
    SPECLAB_CHECK(impl_->tensor(name).shift == 0, "{} is read in float", name);
    impl_->read_rows(name, from, to, rows, dequantize_to_bf16);
  };
  if (impl_->twin) impl_->twin->read<Bf16>(tensor, begin, end, read, out);
  else read(tensor, begin, end, out);
}

void Checkpoint::read_f32(std::string_view tensor, std::int64_t begin, std::int64_t end, float* out) const {
  const auto read = [this](std::string_view name, std::int64_t from, std::int64_t to, float* rows) {
    impl_->read_rows(name, from, to, rows, dequantize);
    const CheckpointTensor& stored = impl_->tensor(name);
    if (stored.shift != 0) {
      for (std::int64_t i = 0; i < (to - from) * stored.columns; ++i) rows[i] += stored.shift;
    }
  };
  if (impl_->twin) impl_->twin->read<float>(tensor, begin, end, read, out);
  else read(tensor, begin, end, out);
}

void Checkpoint::require_finite(std::string_view tensor, std::span<const Bf16> values) const {
  require_finite_weights(impl_->path.string(), impl_->tensor(impl_->original(tensor)).info.file_name, values);
}

std::optional<Tokenizer> Checkpoint::tokenizer() const {
  auto tokenizer = impl_->parts.tokenizer();
  if (const int vocab = impl_->parts.config.vocab; tokenizer && tokenizer->vocab_size() > vocab) {
    throw Error({.what = impl_->path.string() + ": tokenizer",
                 .got = fmt::format("{} tokens", tokenizer->vocab_size()),
                 .expected = fmt::format("at most {}, the vocabulary of the model", vocab),
                 .advice = "The tokenizer and the weights belong to different models; fetch both again."});
  }
  return tokenizer;
}

const std::vector<std::string>& Checkpoint::assumed() const { return impl_->parts.assumed; }
const std::string& Checkpoint::chat_template() const { return impl_->parts.chat_template; }
const std::vector<Checkpoint::TensorInfo>& Checkpoint::tensors() const { return impl_->infos; }

std::uint64_t Checkpoint::file_bytes() const {
  std::uint64_t sum = 0;
  for (const MappedFile& file : impl_->parts.files) sum += file.bytes().size();
  return sum;
}

void Checkpoint::require_unchanged() const {
  for (const MappedFile& file : impl_->parts.files) file.require_unchanged();
}

void Checkpoint::forget_pages() const {
  for (const MappedFile& file : impl_->parts.files) file.forget_pages();
}

std::string Checkpoint::sha256() const {
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  Sha256 hash;
  for (const MappedFile& file : impl_->parts.files) {
    const std::span<const std::byte> bytes = file.bytes();
    for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
      hash.update(bytes.subspan(at, std::min(kPiece, bytes.size() - at)));
      file.forget_pages();
    }
  }
  return hash.hex();
}

}  // namespace speclab
