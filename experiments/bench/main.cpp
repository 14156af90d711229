// The benchmark program of the engine (experiments/bench/bench.h):
// speclab_bench --model PATH [--draft PATH] [--numerics CLASS] [--threads N] [options of Google Benchmark]
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/standard_streams.h"
#include "core/measure/environment.h"
#include "experiments/bench/bench.h"
#include "experiments/cli/command.h"
#include "experiments/run/device/open_backend.h"

namespace speclab {

std::shared_ptr<ModelSet> bench::load(const Setting& setting, const BackendChoice& backend) {
  auto models = std::make_shared<ModelSet>(setting.model, open_backend(backend, write_status_line), "plain");
  if (setting.has_draft) {
    DraftSpec spec;
    spec.name = "draft";
    spec.model = setting.draft;
    models->add_draft(spec);
  }
  return models;
}

namespace {

namespace po = boost::program_options;

int run(int argc, char** argv) {
  std::string model, draft, text;
  BackendChoice backend;
  po::options_description options;
  options.add_options()("model", po::value(&model), "target: a GGUF file or a directory")(
      "draft", po::value(&draft), "draft model of the target: a GGUF file or a directory")(
      "text", po::value(&text),
      "file with a long text for the benchmarks copies/...; default: a made-up text")("help", "this text");
  add_backend_options(options, backend);
  const auto parsed = po::command_line_parser(argc, argv).options(options).allow_unregistered().run();
  po::variables_map values;
  po::store(parsed, values);
  po::notify(values);
  std::vector<std::string> rest = po::collect_unrecognized(parsed.options, po::include_positional);
  if (values.count("help") > 0 || model.empty()) {
    const std::string usage =
        fmt::format("speclab_bench --model PATH [options] [options of Google Benchmark, --benchmark_...]\n{}",
                    (std::ostringstream() << options).str());
    if (values.count("help") == 0) {
      write_status(usage);
      return kUserError;
    }
    fmt::print("{}", usage);
    return kOk;
  }
  bench::Setting setting;
  setting.model = model;
  setting.draft = draft;
  setting.backend = backend;
  setting.has_draft = !draft.empty();
  setting.models = bench::load(setting, backend);
  setting.text = text;
  const int threads = setting.models->backend().threads();
  const bool on_host = setting.models->backend().host_memory();
  const DeviceSpeed speed = setting.models->backend().measure_speed();
  setting.read_bandwidth = speed.read_bytes_per_second;
  setting.peak_flops = speed.peak_flops;

  std::vector<char*> arguments = {argv[0]};
  for (std::string& word : rest) arguments.push_back(word.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return kUserError;
  const BuildInfo& build = build_info();
  benchmark::AddCustomContext("speclab_commit", build.commit + (build.dirty ? " and changes" : ""));
  benchmark::AddCustomContext("cpu", read_cpu_info().model);
  benchmark::AddCustomContext("numerics", std::string(setting.models->backend().numerics_class()));
  benchmark::AddCustomContext("threads", std::to_string(threads));
  benchmark::AddCustomContext("model", setting.models->target()->name());
  benchmark::AddCustomContext("weight_bytes", std::to_string(setting.models->target()->weight_bytes()));
  benchmark::AddCustomContext("read_bandwidth_bytes_per_second",
                              fmt::format("{:.0f}", setting.read_bandwidth));
  benchmark::AddCustomContext("peak_flops_per_second", fmt::format("{:.0f}", setting.peak_flops));
  benchmark::AddCustomContext("backend", std::string(setting.models->backend().name()));
  benchmark::AddCustomContext("device", std::string(setting.models->backend().device_name()));
  if (on_host) {
    bench::add_machine(setting);
    bench::add_kernels(setting);
    bench::add_forwards(setting);
    bench::add_trees(setting);
    bench::add_copies(setting);
  } else {
    bench::add_device(setting, backend.device);
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::ClearRegisteredBenchmarks();  // benchmarks hold models, which must not outlive main
  return kOk;
}

}  // namespace
}  // namespace speclab

int main(int argc, char** argv) {
  try {
    return speclab::run(argc, argv);
  } catch (const speclab::Error& error) {
    speclab::print_status("speclab_bench: {}\n", error.what());
  } catch (const boost::program_options::error& error) {
    speclab::print_status("speclab_bench: {}. See speclab_bench --help.\n", error.what());
  }
  return speclab::kUserError;
}
