#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "core/base/error.h"
#include "core/model/files/checkpoint.h"
#include "tests/model/files/gguf_files.h"

/// Damaged files must be read or refused with an Error. Nothing else may be thrown, and no
/// byte outside the file may be read (run this under AddressSanitizer too). An accepted file
/// must be readable to its last byte.
namespace speclab::checkpoint_damage_test {
namespace {

using namespace speclab::fixtures;

/// True when the model was accepted.
bool open_and_read(const std::filesystem::path& path) {
  try {
    const Checkpoint checkpoint = Checkpoint::open(path);
    for (const Checkpoint::TensorInfo& tensor : checkpoint.tensors()) {
      std::vector<Bf16> rows(static_cast<std::size_t>(tensor.shape.size() == 1 ? 1 : tensor.shape[0]) *
                             static_cast<std::size_t>(tensor.shape.back()));
      checkpoint.read_bf16(tensor.name, 0, tensor.shape.size() == 1 ? 1 : tensor.shape[0], rows.data());
    }
    checkpoint.tokenizer();
    return true;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
    EXPECT_FALSE(error.text().expected.empty()) << error.what();
    return false;
  }
}

Shape small_shape() {
  Shape shape = tiny_shape();
  shape.hidden = shape.embedding_dim = 8, shape.heads = 2, shape.kv_heads = 1, shape.head_dim = 4,
  shape.ffn = 8;
  shape.layers = 1, shape.vocab = kByteVocab;
  return shape;
}

/// Changes, cuts or repeats one to three bytes within the first `header` bytes.
std::string damaged(std::string bytes, std::size_t header, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  switch (below(8)) {
    case 0: return bytes.substr(0, below(bytes.size()));
    case 1: return bytes.erase(below(header), 1 + below(8));
    case 2: return bytes.insert(below(header), bytes.substr(below(header), 1 + below(8)));
    default: break;
  }
  const char interesting[] = {'\0', '\1', '\x7f', '\x80', '\xff', '9', '"', '-'};
  for (std::size_t i = 0, n = 1 + below(3); i < n; ++i) {
    char& byte = bytes[below(header)];
    byte = below(2) == 0 ? interesting[below(8)] : static_cast<char>(byte ^ (1 << below(8)));
  }
  return bytes;
}

void damage_a_file(const std::filesystem::path& model, const std::filesystem::path& file,
                   const std::string& bytes, std::size_t header, int rounds) {
  write_file(file, bytes);
  ASSERT_TRUE(open_and_read(model)) << "the undamaged file";
  std::mt19937_64 random(1);
  int refused = 0;
  for (int i = 0; i < rounds; ++i) {
    write_file(file, damaged(bytes, header, random));
    refused += open_and_read(model) ? 0 : 1;
  }
  EXPECT_GT(refused, rounds / 4);
  write_file(file, bytes);
}

TEST(CheckpointDamage, Gguf) {
  TempDir dir;
  GgufWriter writer = gguf_writer(random_llama(small_shape(), 1), "F16");
  add_byte_tokenizer(writer);
  const std::string bytes = writer.file();
  std::size_t data = 0;
  for (const auto& tensor : writer.tensors) data += (tensor.bytes.size() + 31) / 32 * 32;
  damage_a_file(dir.path() / "m.gguf", dir.path() / "m.gguf", bytes, bytes.size() - data, 1500);
}

TEST(CheckpointDamage, HuggingFaceFiles) {
  TempDir dir;
  const TinyModel model = random_llama(small_shape(), 1);
  write_huggingface(dir.path(), model);
  write_byte_tokenizer(dir.path());
  const std::string weights = safetensors_file(huggingface_tensors(model));
  std::uint64_t header = 0;
  std::memcpy(&header, weights.data(), 8);
  damage_a_file(dir.path(), dir.path() / "model.safetensors", weights, 8 + header, 800);
  const std::string config = huggingface_config(model.config).dump(1);
  damage_a_file(dir.path(), dir.path() / "config.json", config, config.size(), 800);
}

TEST(CheckpointDamage, DraftIds) {
  TempDir dir;
  Shape target = small_shape();
  const TinyModel model = random_llama(tiny_draft_shape(target), 1);
  write_huggingface(dir.path(), model);
  const std::string weights = safetensors_file(huggingface_tensors(model));
  std::uint64_t header = 0;
  std::memcpy(&header, weights.data(), 8);
  damage_a_file(dir.path(), dir.path() / "model.safetensors", weights, 8 + header, 400);
}

}  // namespace
}  // namespace speclab::checkpoint_damage_test
