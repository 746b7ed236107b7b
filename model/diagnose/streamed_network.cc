#include "model/diagnose/streamed_network.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "model/ffn/ffn.h"
#include "model/net/attention.h"
#include "model/net/decoder.h"
#include "model/net/parameters.h"
#include "model/pretrained/model.h"

namespace tailor::diagnose {
namespace {

// One layer with weights of its own.
struct Layer {
  Layer(const net::DecoderForm& form, std::size_t number) {
    const ffn::FfnShape shape = ffn::ffn_shape(form, number);
    attention = std::make_unique<net::Attention>(form, number, shape.layer_prefix, shape.key_prefix,
                                                 parameters);
    ffn = ffn::variant(form.ffn_kind).make(shape, parameters);
  }
  net::ParameterSet parameters;
  std::unique_ptr<net::Attention> attention;
  std::unique_ptr<ffn::Ffn> ffn;
};

// Embedding, final norm and head: the decoder without its layers.
net::DecoderForm ends_of(const net::DecoderForm& form) {
  net::DecoderForm ends = form;
  ends.layers.clear();
  return ends;
}

double bytes_of(const net::ParameterSet& parameters, bool bf16) {
  double bytes = 0;
  for (const net::Part* part : parameters.parts()) {
    bytes += static_cast<double>(part->size()) * (bf16 && part->cols > 0 ? 2 : 4);
  }
  return bytes;
}

class StreamedNetwork final : public ProbeNetwork {
 public:
  StreamedNetwork(const net::DecoderForm& form, const pretrained::TensorSource& source,
                  const StreamOptions& options, double layer_bytes)
      : form_(form),
        source_(source),
        options_(options),
        ends_(ends_of(form), options.device, options.bf16, net::Use::kInference),
        layer_bytes_(layer_bytes) {}

  Status read_ends() { return ends_.parameters().load_weights(source_, stored()); }

  std::int64_t depth() const override { return form_.depth(); }
  std::int64_t width() const override { return form_.d_model; }
  double layer_parameters() const override { return layer_bytes_ / (options_.bf16 ? 2 : 4); }
  double head_parameters() const override {
    return static_cast<double>(form_.vocab_size) * static_cast<double>(form_.d_model);
  }
  at::Device device() const override { return options_.device; }

  Status load(std::int64_t layer) override {
    const auto number = static_cast<std::size_t>(layer);
    current_ = number;
    if (held_.contains(number)) return Status::ok();
    // Passes go from the first layer to the last: what was read first stays, the rest takes turns
    // in the room that is left.
    if (held_.size() >= room_) held_.erase(std::prev(held_.end()));
    auto made = std::make_unique<Layer>(form_, number);
    try {
      made->parameters.allocate(options_.device, options_.bf16, net::Use::kInference);
    } catch (const c10::Error& failure) {
      return Status(Code::kResourceExhausted,
                    fmt::format("no memory for layer {} of {}: {}", layer, source_.path(),
                                failure.what_without_backtrace()));
    }
    TAILOR_RETURN_IF_ERROR(made->parameters.load_weights(source_, stored()));
    held_.emplace(number, std::move(made));
    return Status::ok();
  }

  at::Tensor start(const at::Tensor& tokens_gt) override {
    const c10::NoGradGuard no_grad;
    return ends_.embedded(tokens_gt);
  }

  AroundFfn pass(const at::Tensor& x_nd, std::int64_t sequences) override {
    const c10::NoGradGuard no_grad;
    const Layer& layer = *held_.at(current_);
    const std::size_t rope = form_.layers[current_].rope;
    AroundFfn out;
    out.before = layer.attention->forward(x_nd, sequences, table(rope, x_nd.size(0) / sequences));
    out.after = layer.ffn->forward(out.before);
    return out;
  }

  at::Tensor row_losses(const at::Tensor& x_nd, const at::Tensor& targets_n) override {
    return ends_.row_losses(x_nd, targets_n);
  }

  void set_room(double bytes) {
    room_ = std::max<std::size_t>(1, static_cast<std::size_t>(bytes / layer_bytes_));
  }

 private:
  std::function<std::string(const net::Part&)> stored() const {
    return [this](const net::Part& part) { return pretrained::stored_name(source_, part.name); };
  }

  const net::RopeTable& table(std::size_t index, std::int64_t time) {
    net::RopeTable& kept = ropes_[{index, time}];
    if (kept.length() == 0) {
      kept = net::make_rope_table(time, form_.ropes[index],
                                  at::TensorOptions().device(options_.device).dtype(at::kFloat));
    }
    return kept;
  }

  net::DecoderForm form_;
  const pretrained::TensorSource& source_;
  StreamOptions options_;
  net::Decoder ends_;
  double layer_bytes_;
  std::size_t room_ = 1;  // layers held at once
  std::size_t current_ = 0;
  std::map<std::size_t, std::unique_ptr<Layer>> held_;
  std::map<std::pair<std::size_t, std::int64_t>, net::RopeTable> ropes_;
};

}  // namespace

WeightBytes weight_bytes(const net::DecoderForm& form, bool bf16) {
  WeightBytes bytes;
  const double vocabulary = static_cast<double>(form.vocab_size * form.d_model);
  const double heads = form.tied_head ? 1 : 2;
  bytes.ends = vocabulary * heads * (bf16 ? 2 : 4) + static_cast<double>(form.d_model) * 4;
  bytes.all = bytes.ends;
  bytes.parameters = form.vocab_size * form.d_model * (form.tied_head ? 1 : 2) + form.d_model;
  for (std::size_t l = 0; l < form.layers.size(); ++l) {
    const Layer layer(form, l);  // names and sizes alone: nothing is allocated
    const double one = bytes_of(layer.parameters, bf16);
    bytes.layer = std::max(bytes.layer, one);
    bytes.all += one;
    bytes.parameters += layer.parameters.size();
  }
  return bytes;
}

Result<std::unique_ptr<ProbeNetwork>> make_streamed_network(const net::DecoderForm& form,
                                                            const pretrained::TensorSource& source,
                                                            const StreamOptions& options) {
  const WeightBytes bytes = weight_bytes(form, options.bf16);
  if (bytes.ends + bytes.layer > options.weight_bytes) {
    return error(
        Code::kResourceExhausted,
        fmt::format("{}: embedding, head and one layer take {:.1f} GB, and there are "
                    "{:.1f} GB for weights; {}give more with --memory",
                    source.path(), (bytes.ends + bytes.layer) / 1e9, options.weight_bytes / 1e9,
                    options.bf16 ? "" : "take --dtype bf16 or "));
  }
  std::vector<std::string> names;
  for (std::size_t l = 0; l < form.layers.size(); ++l) {
    const Layer layer(form, l);
    for (const net::Part* part : layer.parameters.parts()) names.push_back(part->name);
  }
  try {
    auto network = std::make_unique<StreamedNetwork>(form, source, options, bytes.layer);
    network->set_room(options.weight_bytes - bytes.ends);
    for (const char* name : {"model.embed_tokens.weight", "model.norm.weight"}) {
      names.emplace_back(name);
    }
    if (!form.tied_head) names.emplace_back("lm_head.weight");
    TAILOR_RETURN_IF_ERROR(pretrained::check_tensors(source, names, form.tied_head));
    TAILOR_RETURN_IF_ERROR(network->read_ends());
    return std::unique_ptr<ProbeNetwork>(std::move(network));
  } catch (const c10::Error& failure) {
    return error(Code::kResourceExhausted,
                 fmt::format("no memory for the embedding of {}: {}", source.path(),
                             failure.what_without_backtrace()));
  }
}

}  // namespace tailor::diagnose
