// The real binary on files that change while it reads them, and without file descriptors, memory or threads
// to spare. It exits with code 0 or 2 and a message, never by a signal and never with "bug:".
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <limits>

#include "tests/experiments/cli/cli.h"
#include "tests/model/files/gguf_files.h"

namespace speclab::hostile_cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using namespace speclab::fixtures;

class Hostile : public ::testing::Test {
 protected:
  const fs::path& dir() const { return dir_.path(); }
  TempDir dir_;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized =
    true;  // sanitizers reserve terabytes of address space and handle every signal themselves
#else
constexpr bool kSanitized = false;
#endif

struct Result {
  int code;
  std::string out, err;
};
Result shell(const fs::path& folder, const std::string& command) {
  Cli cli(Cli::Shell{}, folder, command);
  const int code = cli.wait();
  return {code, cli.out(), cli.err()};
}

/// A valid model file with a tensor that is a hole of 256 MB in a sparse file, so that hashing it takes a
/// while.
fs::path large_file(const fs::path& folder) {
  constexpr std::uint64_t kRows = 1 << 21;
  Shape shape = tiny_shape();
  shape.tied_head = true;
  GgufWriter writer = gguf_writer(random_llama(shape, 1));
  GgufWriter::Tensor& last = writer.tensors.back();
  last = {"token_embd.weight", {static_cast<std::uint64_t>(shape.hidden), kRows}, 0, ""};
  const fs::path path = folder / "large.gguf";
  fixtures::write_file(path, writer.file());
  fs::resize_file(path, fs::file_size(path) + 4 * kRows * static_cast<std::uint64_t>(shape.hidden));
  return path;
}

bool is_mapped(int process, const fs::path& path) {
  return Cli::read(fs::path("/proc") / std::to_string(process) / "maps").find(path.string()) !=
         std::string::npos;
}

/// Runs `speclab model` on a large file and calls `change` as soon as the file is mapped.
Result model_of_a_changing_file(const fs::path& folder, const fs::path& path,
                                const std::function<void()>& change) {
  Cli cli(folder, {"model", path.string()});
  while (cli.running() && !is_mapped(cli.process(), path))
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  change();
  const int code = cli.wait();
  return {code, cli.out(), cli.err()};
}

TEST_F(Hostile, AModelFileThatShrinksWhileItIsRead) {
  const fs::path path = large_file(dir());
  const Result result = model_of_a_changing_file(dir(), path, [&] { fs::resize_file(path, 4096); });
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err,
              AllOf(StartsWith("error: " + path.string()), HasSubstr("Another program shortened it")));
  EXPECT_EQ(result.out, "");
}

TEST_F(Hostile, AModelFileThatIsWrittenToWhileItIsRead) {
  const fs::path path = large_file(dir());
  const Result result = model_of_a_changing_file(dir(), path, [&] {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4, std::ios::end);
    file.write("abcd", 4);
  });
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, AllOf(StartsWith("error: " + path.string()), HasSubstr("changed contents")));
  EXPECT_EQ(result.out, "");
}

/// A SIGBUS that another process sends is not blamed on a file.
TEST_F(Hostile, AForeignBusError) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer catches it";
  const fs::path path = large_file(dir());
  Cli cli(dir(), {"model", path.string()});
  while (cli.running() && !is_mapped(cli.process(), path))
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  cli.kill(SIGBUS);
  EXPECT_EQ(cli.wait(), -SIGBUS);
  EXPECT_EQ(cli.err(), "");
}

/// Every kind of input file, once empty and once with one byte: exit code 2 and a message that names the
/// file.
TEST_F(Hostile, EmptyFilesAndFilesOfAByte) {
  const std::string config =
      R"({"target": "m", "prompts": {"file": "p.jsonl"}, "repeats": 1, "calibration": false,
    "options": {"max_tokens": 4}, "cases": [{"strategy": "autoregressive"}]})";
  struct Kind {
    const char *file, *command;
  };
  const Kind kinds[] = {{"m.gguf", "model m.gguf"},
                        {"m.gguf", "generate --model m.gguf --prompt 1"},
                        {"m/config.json", "generate --model m --prompt 1"},
                        {"m/model.safetensors", "generate --model m --prompt 1"},
                        {"m/tokenizer.json", "generate --model m --prompt 1"},
                        {"m/tokenizer.model", "generate --model m --prompt 1"},
                        {"m/tokenizer_config.json", "generate --model m --prompt 1"},
                        {"m/generation_config.json", "generate --model m --prompt 1"},
                        {"m/model.safetensors.index.json", "generate --model m --prompt 1"},
                        {"a.json", "run a.json --out r"},
                        {"p.jsonl", "run a.json --out r"}};
  for (const Kind& kind : kinds) {
    for (const std::string& bytes :
         {std::string(), std::string("\0", 1), std::string("G"), std::string("{"), std::string("\xff")}) {
      fs::remove_all(dir() / "m");
      Shape shape = tiny_shape();
      shape.vocab = kByteVocab;
      write_tiny_llama(dir() / "m", shape, 1);
      write_byte_tokenizer(dir() / "m");
      if (kind.file == std::string("m/tokenizer.model")) fs::remove(dir() / "m/tokenizer.json");
      if (kind.file == std::string("m/model.safetensors.index.json"))
        fs::remove(dir() / "m/model.safetensors");
      fixtures::write_file(dir() / "a.json", config);
      fixtures::write_file(dir() / "p.jsonl", "\"1 2\"\n");
      fixtures::write_file(dir() / kind.file, bytes);
      const Result result = shell(dir(), std::string("$SPECLAB ") + kind.command);
      EXPECT_EQ(result.code, 2) << kind.file << " of " << bytes.size() << ": " << result.err;
      EXPECT_THAT(result.err,
                  AllOf(StartsWith("error: "), HasSubstr(fs::path(kind.file).filename().string())))
          << bytes.size();
    }
  }
}

/// A finished line that was changed by hand stops --resume and the report; the message names its place, and
/// nothing overwrites it.
TEST_F(Hostile, DamagedRecords) {
  write_tiny_llama(dir() / "m", tiny_shape(), 1);
  fixtures::write_file(
      dir() / "a.json",
      R"({"target": "m", "drafts": {"d": {"layers": [0]}}, "prompts": {"inline": ["1 2", "3 4"]},
    "repeats": 2, "options": {"max_tokens": 4, "temperature": 1, "budget": "fixed"}, "calibration": {"rows": 2},
    "cases": [{"strategy": "autoregressive"}, {"strategy": "speculative_sampling", "draft": "d", "gamma": 2}]})");
  const Result whole = shell(dir(), "$SPECLAB run a.json --out r -q");
  ASSERT_EQ(whole.code, 0) << whole.err;
  struct Damage {
    const char *file, *was, *is;  // replaces the first occurrence in the second line
    std::vector<std::string> says;
  };
  const Damage damages[] = {
      {"cases/autoregressive.jsonl", "\"case\"", "\"case", {"autoregressive.jsonl: line 2: line 1, column"}},
      {"cases/autoregressive.jsonl",
       "\"schema_version\":1",
       "\"schema_version\":2",
       {"line 2: schema_version: got 2, expected 1"}},
      {"cases/autoregressive.jsonl",
       "\"emitted\":1",
       "\"emitted\":-5",
       {"line 2: emitted: got -5, expected a whole number from 0"}},
      {"cases/autoregressive.jsonl",
       "\"decode_ns\":",
       "\"decode_ns\":1e300,\"x\":",
       {"line 2: decode_ns: got 1e+300"}},
      {"cases/autoregressive.jsonl",
       "\"row_hashes\":[",
       "\"row_hashes\":[7,",
       {"line 2: row_hashes: got 5 of them, expected one for each of 4"}},
      {"cases/autoregressive.jsonl",
       "\"finish\":\"length\"",
       "\"finish\":\"long\"",
       {"line 2: finish: got long"}},
      {"teacher.jsonl", "\"kind\"", "\"kin\"", {"r", "key 'kind' not found"}},
      {"calibration.jsonl",
       "\"t_n_ns\":{\"1\"",
       "\"t_n_ns\":{\"one\"",
       {"calibration.jsonl: got one, expected a number of rows"}},
  };
  for (const Damage& damage : damages) {
    const fs::path path = dir() / "r" / damage.file;
    const std::string good = Cli::read(path);
    std::string bad = good;
    const std::size_t at = bad.find(damage.was, bad.find('\n') + 1);
    ASSERT_NE(at, bad.npos) << damage.file << ": " << damage.was;
    bad.replace(at, std::string_view(damage.was).size(), damage.is);
    fixtures::write_file(path, bad);
    for (const char* command : {"run a.json --out r -q --resume", "report r", "compare r r"}) {
      const Result result = shell(dir(), std::string("$SPECLAB ") + command);
      EXPECT_EQ(result.code, 2) << command << " with " << damage.is << ": " << result.err;
      EXPECT_THAT(result.err, StartsWith("error: "));
      for (const std::string& text : damage.says) EXPECT_THAT(result.err, HasSubstr(text)) << command;
      EXPECT_EQ(Cli::read(path), bad) << command << " wrote to " << damage.file;
    }
    fixtures::write_file(path, good);
  }
  EXPECT_EQ(shell(dir(), "$SPECLAB run a.json --out r -q --resume").code, 0);
}

/// The whole program on input that the tests of the readers cover too: exit code 2 and a message of one line.
TEST_F(Hostile, InputThatContradictsItself) {
  write_tiny_llama(dir() / "m", tiny_shape(), 1);
  fixtures::write_file(dir() / "a.json",
                       R"({"target": "m", "drafts": {"d": {"layers": [0]}}, "prompts": {"inline": ["1 2"]},
    "calibration": false, "cases": [{"strategy": "autoregressive"}, {"strategy": "speculative_sampling", "draft": "d", "gamma": 2}]})");
  const auto expect_refused = [&](const std::string& command, const std::vector<std::string>& says) {
    const Result result = shell(dir(), "$SPECLAB " + command);
    EXPECT_EQ(result.code, 2) << command << ": " << result.err;
    EXPECT_THAT(result.err, StartsWith("error: ")) << command;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << command << ": " << result.err;
    for (const std::string& text : says) EXPECT_THAT(result.err, HasSubstr(text)) << command;
    EXPECT_FALSE(fs::exists(dir() / "r")) << command;
  };
  expect_refused("run a.json --out r --set 'cases.1.gamma=[]'", {"a.json: /cases/1/gamma", "empty sweep"});
  expect_refused("run a.json --out r --set cases.1.gamma=four",
                 {"a.json: /cases/1/gamma", "\"four\"", "integer"});
  expect_refused("run a.json --out r --set cases.1.gama=4",
                 {"a.json: /cases/1/gama", "Did you mean \"gamma\""});
  expect_refused("list strategies > /dev/full", {"cannot write to standard output"});
  expect_refused("generate --model m --prompt '" +
                     [] {
                       std::string ids;
                       for (int i = 0; i < 300; ++i) ids += "1 ";
                       return ids;
                     }() +
                     "'",
                 {"300", "256"});
  Shape other = tiny_shape();
  other.ffn = 48;
  fixtures::write_file(dir() / "m/config.json", huggingface_config(other).dump());
  expect_refused("run a.json --out r -q", {"model.layers.0.mlp", "[64, 32]", "[48, 32]"});
  fixtures::write_file(dir() / "m/config.json", "{\"model_type\": \"llama\",\n  oops}");
  expect_refused("model m", {"config.json: line 2, column"});
}

TEST_F(Hostile, NoFileDescriptors) {
  if (kSanitized)
    GTEST_SKIP() << "the sanitizer opens a pipe to see whether a dynamic type can be read, and takes none "
                    "for a wrong one";
  const nlohmann::json config = {
      {"target", SPECLAB_SOURCE_DIR "/tests/golden/families/llama"},  // opens several files
      {"prompts", {{"inline", {"1 2"}}}},
      {"repeats", 1},
      {"calibration", false},
      {"options", {{"max_tokens", 4}}},
      {"cases", {{{"strategy", "autoregressive"}}}}};
  fixtures::write_file(dir() / "a.json", config.dump());
  std::string seen;
  for (const int limit : {4, 5, 6, 7, 8, 9, 10, 12, 16}) {
    const std::string out = "run" + std::to_string(limit);
    const Result result =
        shell(dir(), "ulimit -n " + std::to_string(limit) + "; $SPECLAB run a.json --out " + out);
    if (result.code == 127) continue;  // the dynamic linker itself gave up
    EXPECT_TRUE(result.code == 0 || result.code == 2) << limit << ": " << result.code << "\n" << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("bug:"))) << limit;
    if (result.code == 2) {
      EXPECT_THAT(result.err, HasSubstr("error: ")) << limit;
    }
    seen += result.code == 0 ? 'o' : 'e';
  }
  EXPECT_EQ(seen.back(), 'o') << seen;
}

TEST_F(Hostile, LittleMemory) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer reserves address space";
  write_tiny_llama(dir() / "m", tiny_shape(), 1);
  const fs::path large = large_file(dir());
  const std::string tiny = "generate --model m --prompt 1 --set max_tokens=4 --threads ";
  fixtures::write_file(dir() / "a.json", R"({"target": "m", "cases": [], "prompts": {"inline": [")" +
                                             std::string(32 << 20, 'a') + "\"]}}");
  struct Limit {
    int megabytes;
    std::string command, says;  // "": the command succeeds
  };
  for (const Limit& limit :
       {Limit{32, tiny + "4", "ulimit -v"}, Limit{1024, tiny + "4", ""},
        Limit{64, "model " + large.string(), large.string() + ": got Cannot allocate memory"},
        Limit{64, "run a.json --out r", "out of memory"}}) {
    const Result result =
        shell(dir(), "ulimit -v " + std::to_string(1024 * limit.megabytes) + "; $SPECLAB " + limit.command);
    if (result.code == 127) continue;  // the dynamic linker itself gave up
    EXPECT_EQ(result.code, limit.says.empty() ? 0 : 2) << limit.megabytes << " MB: " << result.err;
    if (!limit.says.empty()) {
      EXPECT_THAT(result.err, AllOf(StartsWith("error: "), HasSubstr(limit.says))) << limit.megabytes;
    }
  }
  // How much the program itself needs depends on its size and on the system, so several limits are tried.
  int named = 0;
  for (int megabytes = 28; megabytes <= 60; megabytes += 4) {
    const Result result =
        shell(dir(), "ulimit -v " + std::to_string(1024 * megabytes) + "; $SPECLAB " + tiny + "1");
    if (result.code == 127 || result.code == 0) continue;
    EXPECT_EQ(result.code, 2) << megabytes << " MB: " << result.err;
    EXPECT_THAT(result.err, AllOf(StartsWith("error: "), HasSubstr("memory"))) << megabytes;
    named += result.err.find("memory for ") != std::string::npos;
  }
  EXPECT_GT(named, 0) << "no limit at which the error names what the memory was for";
}

/// Weights that are NaN or infinite are refused by name.
TEST_F(Hostile, WeightsThatAreNoNumbers) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    TinyModel model = random_llama(tiny_shape(), 1);
    model.tensors.at("layers.1.ffn_down").values[5] = bad;
    write_huggingface(dir() / "m", model, {.dtype = "F32"});
    const Result result = shell(dir(), "$SPECLAB generate --model m --prompt 1 --set max_tokens=4");
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("error: "), HasSubstr("model.layers.1.mlp.down_proj.weight")));
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(Hostile, NamesInFilesDoNotReachTheTerminal) {
  GgufWriter writer = gguf_writer(random_llama(tiny_shape(), 1));
  writer.tensors.push_back({"\x1b[2J\n", {4}, 0, std::string(16, '\0')});
  fixtures::write_file(dir() / "m.gguf", writer.file());
  const Result result = shell(dir(), "$SPECLAB model m.gguf");
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("tensor \\x1b[2J\\n"), Not(HasSubstr("\x1b"))));
}

}  // namespace
}  // namespace speclab::hostile_cli_test
