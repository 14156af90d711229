// `speclab datastore build`, `speclab ngram build` and the strategies that read their files, through the real
// binary.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/experiments/cli/cli.h"
#include "tests/model/files/model_files.h"

namespace speclab::datastore_cli_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class DatastoreCommand : public ::testing::Test {
 protected:
  struct Result {
    int code;
    std::string out, err;
  };
  void SetUp() override { fixtures::write_tiny_llama(dir_.path() / "target", fixtures::tiny_shape(), 1); }
  Result run(const std::vector<std::string>& arguments) {
    fixtures::Cli cli(dir_.path(), arguments);
    const int code = cli.wait();
    return {code, cli.out(), cli.err()};
  }
  Result build(const std::vector<std::string>& files) {
    std::vector<std::string> words{"datastore", "build", "--model", "target", "--out", "store", "--json"};
    words.insert(words.end(), files.begin(), files.end());
    return run(words);
  }
  void write(const std::string& name, const std::string& text) { std::ofstream(dir_.path() / name) << text; }
  fixtures::TempDir dir_;
};

TEST_F(DatastoreCommand, BuildsWhatTheStrategyReads) {
  write("a.jsonl", "{\"ids\": [1, 2, 3, 4]}\n\n{\"ids\": [5, 6]}");  // no newline at the end
  write("b.jsonl", "{\"ids\": [7]}\n");
  const Result built = build({"a.jsonl", "b.jsonl"});
  ASSERT_EQ(built.code, 0) << built.err;
  EXPECT_EQ(json::parse(built.out)["tokens"], 4 + 2 + 1 + 3);
  const auto generate = [&](const std::string& strategy, const std::string& set) {
    return run({"generate", "--model", "target", "--strategy", strategy, "--set", set, "--set",
                "max_tokens=30", "--prompt", "1 2"});
  };
  const Result drafted = generate("retrieval", "datastore=store");
  EXPECT_EQ(drafted.code, 0) << drafted.err;
  EXPECT_EQ(drafted.out, generate("autoregressive", "min_length=0").out);
  write("damaged", fixtures::Cli::read(dir_.path() / "store") + "x");
  const Result damaged = generate("retrieval", "datastore=damaged");
  EXPECT_EQ(damaged.code, 2);
  EXPECT_THAT(damaged.err, HasSubstr("whole datastore"));
}

TEST_F(DatastoreCommand, BuildsAnNgramModel) {
  write("a.jsonl", "{\"ids\": [1, 2, 3, 4]}\n\n{\"ids\": [1, 2, 5]}");
  const auto ngram = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"ngram", "build", "--model", "target", "--out", "ngrams", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Result built = ngram({"a.jsonl"});
  ASSERT_EQ(built.code, 0) << built.err;
  EXPECT_EQ(json::parse(built.out)["ngrams"], (json{5, 4, 3}));
  EXPECT_EQ(json::parse(ngram({"--order", "2", "a.jsonl"}).out)["ngrams"], (json{5, 4}));
  const auto generate = [&](const std::string& strategy, const std::vector<std::string>& sets) {
    std::vector<std::string> words{"generate", "--model", "target",       "--strategy",
                                   strategy,   "--set",   "max_tokens=30"};
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    words.insert(words.end(), {"--prompt", "1 2"});
    return run(words);
  };
  const Result drafted = generate("ngram_model", {"counts=file", "file=ngrams"});
  EXPECT_EQ(drafted.code, 0) << drafted.err;
  EXPECT_EQ(drafted.out, generate("autoregressive", {}).out);
  write("damaged", fixtures::Cli::read(dir_.path() / "ngrams") + "x");
  const Result damaged = generate("ngram_model", {"counts=file", "file=damaged"});
  EXPECT_EQ(damaged.code, 2);
  EXPECT_THAT(damaged.err, HasSubstr("speclab ngram build"));
  ASSERT_EQ(build({"a.jsonl"}).code, 0);
  EXPECT_THAT(generate("ngram_model", {"counts=file", "file=store"}).err, HasSubstr("another kind"));
  EXPECT_THAT(ngram({"--order", "7", "a.jsonl"}).err, HasSubstr("1 to 6"));
  EXPECT_THAT(ngram({}).err, HasSubstr("no files"));
}

TEST_F(DatastoreCommand, BadInput) {
  const auto error = [&](const std::string& text) {
    write("bad.jsonl", text);
    const Result result = build({"bad.jsonl"});
    EXPECT_EQ(result.code, 2) << text;
    return result.err;
  };
  EXPECT_THAT(error("{\"ids\": [1]}\n{\"ids\": [1,\n"), HasSubstr("bad.jsonl:2: got no JSON"));
  EXPECT_THAT(error("{\"ids\": [1, -4]}"), HasSubstr("bad.jsonl:1"));
  EXPECT_THAT(error("{\"ids\": [1, 1000000]}"), HasSubstr("token 1000000"));
  EXPECT_THAT(error("{\"text\": \"no tokenizer\"}"), HasSubstr("has no tokenizer"));
  EXPECT_THAT(error("[1, 2]"), HasSubstr("bad.jsonl:1"));
  EXPECT_THAT(error("\n"), HasSubstr("no tokens"));
  EXPECT_EQ(build({}).code, 2);
  EXPECT_EQ(build({"nowhere.jsonl"}).code, 2);
  EXPECT_EQ(run({"datastore", "bild", "--model", "target", "--out", "x", "a"}).code, 2);
  EXPECT_EQ(run({"datastore", "build", "--out", "x", "a"}).code, 2);
}

}  // namespace
}  // namespace speclab::datastore_cli_test
