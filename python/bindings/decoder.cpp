#include "core/theory/cost.h"
#include "python/bindings/bindings.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace speclab::python {
namespace {

using theory::DecoderShape, theory::ForwardCost, theory::Machine;

DecoderShape shape_of(int layers, int hidden, int heads, int kv_heads, int head_dim, int ffn, int vocab,
                      bool gated, double weight_bytes, double kv_bytes, double extra_weights,
                      int windowed_layers, int window) {
  return {.layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .ffn = ffn,
          .gated = gated,
          .vocab = vocab,
          .weight_bytes = weight_bytes,
          .kv_bytes = kv_bytes,
          .extra_weights = extra_weights,
          .windowed_layers = windowed_layers,
          .window = window};
}

/// The cost of one forward of a batch, in which each sequence feeds a chain of `rows` tokens after `context`
/// committed tokens.
ForwardCost cost_of(const DecoderShape& shape, int rows, double context, std::optional<int> logit_rows,
                    std::optional<double> keys, int batch) {
  const double seen = keys ? *keys : theory::causal_keys(context, rows);
  const theory::ForwardSize size{
      .tokens = rows, .logit_rows = logit_rows.value_or(rows), .context = context, .keys = seen};
  return theory::batch_cost(theory::forward_cost(shape, size), batch);
}

void bind_forward(nb::module_& module) {
  nb::class_<ForwardCost>(module, "ForwardCost",
                          "Operations and bytes of one forward. A multiply-add counts as two operations.")
      .def_ro("body_flops", &ForwardCost::body_flops)
      .def_ro("head_flops", &ForwardCost::head_flops)
      .def_ro("attention_flops", &ForwardCost::attention_flops)
      .def_ro("weight_bytes", &ForwardCost::weight_bytes)
      .def_ro("embedding_bytes", &ForwardCost::embedding_bytes)
      .def_ro("kv_read_bytes", &ForwardCost::kv_read_bytes)
      .def_ro("kv_write_bytes", &ForwardCost::kv_write_bytes)
      .def_ro("logits_bytes", &ForwardCost::logits_bytes)
      .def_prop_ro("flops", &ForwardCost::flops)
      .def_prop_ro("bytes", &ForwardCost::bytes);
  module.def("forward_cost", &cost_of, "shape"_a, "rows"_a = 1, "context"_a = 0.0,
             "logit_rows"_a = nb::none(), "keys"_a = nb::none(), "batch"_a = 1,
             R"(Operations and bytes of one forward of a batch, all sequences together. Weights are read once.

Each sequence feeds a chain of `rows` tokens after `context` committed tokens. logit_rows: rows of a sequence
for which the output head runs; default: all. keys: number of keys that a row sees, summed over the rows of a
sequence; default: the number for a chain (tree_keys gives the number for a tree).)");
  module.def(
      "tree_keys",
      [](double context, const std::vector<int>& depths) { return theory::tree_keys(context, depths); },
      "context"_a, "depths"_a,
      "Number of keys that a node sees, summed over the nodes. depths: the depth of each fed node; the "
      "pending token has depth 0.");
}

}  // namespace

void bind_decoder(nb::module_& module) {
  nb::class_<DecoderShape>(module, "DecoderShape",
                           R"(The shape of a decoder, from which its operations and bytes are computed.

gated: three feed-forward matrices (Llama); otherwise two (GPT-2). vocab: rows of the output head.
weight_bytes: bytes of a weight. kv_bytes: bytes of a number in the KV cache. extra_weights: number of weights
in further matrices. windowed_layers: number of layers that see only the last `window` positions.)")
      .def(
          "__init__",
          [](DecoderShape* self, int layers, int hidden, int heads, int kv_heads, int head_dim, int ffn,
             int vocab, bool gated, double weight_bytes, double kv_bytes, double extra_weights,
             int windowed_layers, int window) {
            new (self) DecoderShape(shape_of(layers, hidden, heads, kv_heads, head_dim, ffn, vocab, gated,
                                             weight_bytes, kv_bytes, extra_weights, windowed_layers, window));
          },
          nb::kw_only(), "layers"_a, "hidden"_a, "heads"_a, "kv_heads"_a, "head_dim"_a, "ffn"_a, "vocab"_a,
          "gated"_a = true, "weight_bytes"_a = 2.0, "kv_bytes"_a = 2.0, "extra_weights"_a = 0.0,
          "windowed_layers"_a = 0, "window"_a = 0)
      .def_prop_ro("body_weights", &theory::body_weights, "weights of all layers and extra_weights")
      .def_prop_ro("head_weights", &theory::head_weights, "weights of the output head")
      .def("flops_per_token", &theory::flops_per_token, "context"_a = 0.0,
           "Operations for one token and its logits row at a context of this many tokens. At context 0 they "
           "leave out attention.")
      .def("kv_to_weight_ratio", &theory::kv_to_weight_ratio, "batch"_a, "context"_a,
           "Bytes of KV cache / bytes of weights. Source: MagicDec (Sadhukhan et al. 2024).");
  bind_forward(module);
  module.def("c_hat", &theory::c_hat, "draft"_a, "target"_a, "context"_a = 0.0,
             "Operations of the draft per token / operations of the target per token.");
  nb::class_<Machine>(module, "Machine", "A machine for the roofline model.")
      .def(
          "__init__",
          [](Machine* self, double peak_flops, double bandwidth, double overhead_seconds) {
            new (self) Machine{peak_flops, bandwidth, overhead_seconds};
          },
          "peak_flops"_a, "bandwidth"_a, "overhead_seconds"_a = 0.0,
          "peak_flops: operations per second. bandwidth: bytes per second. overhead_seconds: added to the "
          "time of every forward.")
      .def_ro("peak_flops", &Machine::peak_flops)
      .def_ro("bandwidth", &Machine::bandwidth)
      .def_ro("overhead_seconds", &Machine::overhead_seconds);
  module.def("roofline_seconds", &theory::roofline_seconds, "cost"_a, "machine"_a,
             "Seconds of a forward: max(flops / peak, bytes / bandwidth) + overhead.");
  module.def("ridge_rows", &theory::ridge_rows, "shape"_a, "machine"_a,
             "Number of rows above which products with the weight matrices are bound by arithmetic.");
}

}  // namespace speclab::python
