#include "model/diagnose/forward.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/rng.h"

namespace tailor::diagnose {
namespace {

constexpr double kStreamBytes = 2.0 * (1 << 30);
constexpr std::size_t kProbesOfPass = 32;
constexpr std::int64_t kRowsAtOnce = 2048;  // of one product: large enough to be fast

// Draw `draw` of layer `layer`, (T, d).
at::Tensor noise_of(std::uint64_t seed, int layer, int draw, std::int64_t time, std::int64_t width,
                    at::Device device) {
  at::Tensor xi = at::empty({time, width}, at::kFloat);
  auto* values = xi.mutable_data_ptr<float>();
  const std::uint64_t key = stable_hash(fmt::format("perturbation {} {}", layer, draw), seed);
  at::parallel_for(0, time, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t i = 0; i < width; ++i) {
        values[t * width + i] = static_cast<float>(
            keyed_normal(key, static_cast<std::uint64_t>(t), static_cast<std::uint64_t>(i)));
      }
    }
  });
  return xi.to(device);
}

// The noise of one layer, made when first asked for.
class LayerNoise {
 public:
  LayerNoise(std::uint64_t seed, int layer, std::int64_t time, std::int64_t width,
             at::Device device)
      : seed_(seed), layer_(layer), time_(time), width_(width), device_(device) {}
  const at::Tensor& operator()(int draw) {
    at::Tensor& kept = draws_[draw];
    if (!kept.defined()) kept = noise_of(seed_, layer_, draw, time_, width_, device_);
    return kept;
  }

 private:
  std::uint64_t seed_;
  int layer_;
  std::int64_t time_, width_;
  at::Device device_;
  std::map<int, at::Tensor> draws_;
};

// Perturbs `after` (a stream's own) as the probe says.
void perturb(const Probe& probe, const at::Tensor& before, at::Tensor& after, LayerNoise& noise,
             std::int64_t sequences) {
  if (probe.kind == Perturbation::kAblation) {
    after.copy_(before);
    return;
  }
  const at::Tensor f = after - before;
  if (probe.kind == Perturbation::kAttenuation) {
    after.sub_(f, probe.eps);
    return;
  }
  const at::Tensor& of = probe.kind == Perturbation::kRelative ? f : before;
  const at::Tensor rms = of.pow(2).mean(1, /*keepdim=*/true).sqrt();
  const at::Tensor& xi_td = noise(probe.draw);
  const std::int64_t time = xi_td.size(0);
  const at::Tensor shared =
      xi_td.unsqueeze(0).expand({sequences, time, xi_td.size(1)}).reshape({-1, xi_td.size(1)});
  after.add_(shared * rms, probe.eps);
}

// Sums over each sequence's scored rows.
std::vector<double> scored_losses(ProbeNetwork& network, const ScoredTokens& tokens,
                                  const at::Tensor& x_nd) {
  const std::int64_t sequences = tokens.tokens_gt.size(0);
  const std::int64_t time = tokens.tokens_gt.size(1);
  const std::int64_t first = time - tokens.scored;
  const at::Tensor rows = x_nd.view({sequences, time, -1})
                              .narrow(1, first, tokens.scored)
                              .reshape({sequences * tokens.scored, -1});
  const at::Tensor targets = tokens.targets_gt.narrow(1, first, tokens.scored).reshape({-1});
  const at::Tensor losses = network.row_losses(rows, targets)
                                .to(at::kDouble)
                                .view({sequences, tokens.scored})
                                .sum(1)
                                .to(at::kCPU);
  const double* values = losses.const_data_ptr<double>();
  return {values, values + sequences};
}

}  // namespace

std::size_t probes_per_pass(std::int64_t rows, std::int64_t width) {
  const double bytes = static_cast<double>(rows) * static_cast<double>(width) * 4;
  return std::clamp<std::size_t>(static_cast<std::size_t>(kStreamBytes / bytes), 1, kProbesOfPass);
}

Result<ProbeLosses> run_probes(ProbeNetwork& network, const ScoredTokens& tokens,
                               std::span<const Probe> probes, std::uint64_t seed,
                               const Told& told) {
  const c10::NoGradGuard no_grad;
  const std::int64_t sequences = tokens.tokens_gt.size(0);
  const std::int64_t time = tokens.tokens_gt.size(1);
  const std::int64_t rows = sequences * time;
  TAILOR_CHECK(tokens.scored >= 1 && tokens.scored <= time);
  const auto say = [&](std::int64_t streams) {
    if (told) told(streams * rows);
  };
  at::Tensor clean = network.start(tokens.tokens_gt);
  std::vector<at::Tensor> streams(probes.size());
  std::size_t split = 0;  // probes before it have a stream of their own
  const auto together = static_cast<std::size_t>(std::max<std::int64_t>(1, kRowsAtOnce / rows));
  for (std::int64_t l = 0; l < network.depth(); ++l) {
    const auto layer = static_cast<int>(l);
    TAILOR_RETURN_IF_ERROR(network.load(l));
    LayerNoise noise(seed, layer, time, network.width(), network.device());
    const auto is_perturbed = [&](const Probe& probe) {
      return std::binary_search(probe.layers.begin(), probe.layers.end(), layer);
    };
    // Streams that were split off before.
    for (std::size_t first = 0; first < split; first += together) {
      const std::size_t count = std::min(together, split - first);
      const auto own = static_cast<std::int64_t>(count);
      const at::Tensor x_nd =
          count == 1 ? streams[first] : at::cat(at::TensorList(streams.data() + first, count));
      AroundFfn around = network.pass(x_nd, own * sequences);
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t at = static_cast<std::int64_t>(i) * rows;
        at::Tensor after = around.after.narrow(0, at, rows);
        if (is_perturbed(probes[first + i])) {
          perturb(probes[first + i], around.before.narrow(0, at, rows), after, noise, sequences);
        }
        streams[first + i] = after;
      }
      say(own);
    }
    AroundFfn around = network.pass(clean, sequences);
    clean = around.after;
    say(1);
    for (; split < probes.size() && probes[split].layers.front() == layer; ++split) {
      streams[split] = clean.clone();
      perturb(probes[split], around.before, streams[split], noise, sequences);
    }
  }
  TAILOR_CHECK(split == probes.size(), "probes are not ordered by their first layer");
  ProbeLosses out;
  out.clean = scored_losses(network, tokens, clean);
  for (at::Tensor& stream : streams) {
    out.probes.push_back(scored_losses(network, tokens, stream));
    stream.reset();
    say(1);
  }
  return out;
}

Status take_cloud_rows(ProbeNetwork& network, const std::vector<std::vector<std::int64_t>>& tokens,
                       const std::vector<std::vector<std::int64_t>>& offsets, const CloudSink& sink,
                       const Told& told) {
  const c10::NoGradGuard no_grad;
  TAILOR_CHECK(!tokens.empty() && tokens.size() == offsets.size());
  const auto time = static_cast<std::int64_t>(tokens.front().size());
  const double bytes = static_cast<double>(time) * static_cast<double>(network.width()) * 4;
  const auto of_pass = static_cast<std::size_t>(std::max(1.0, kStreamBytes / bytes));
  const auto together = static_cast<std::size_t>(std::max<std::int64_t>(1, kRowsAtOnce / time));
  struct Batch {
    at::Tensor x_nd;
    at::Tensor rows;
    std::int64_t sequences = 0;
  };
  for (std::size_t first = 0; first < tokens.size(); first += of_pass) {
    const std::size_t end = std::min(tokens.size(), first + of_pass);
    std::vector<Batch> batches;
    for (std::size_t begin = first; begin < end; begin += together) {
      const std::size_t stop = std::min(end, begin + together);
      std::vector<std::int64_t> ids, rows;
      for (std::size_t s = begin; s < stop; ++s) {
        ids.insert(ids.end(), tokens[s].begin(), tokens[s].end());
        for (const std::int64_t offset : offsets[s]) {
          rows.push_back(static_cast<std::int64_t>(s - begin) * time + offset);
        }
      }
      Batch batch;
      batch.sequences = static_cast<std::int64_t>(stop - begin);
      batch.x_nd = network.start(
          at::tensor(ids, at::kLong).view({batch.sequences, time}).to(network.device()));
      batch.rows = at::tensor(rows, at::kLong).to(network.device());
      batches.push_back(std::move(batch));
    }
    for (std::int64_t l = 0; l < network.depth(); ++l) {
      TAILOR_RETURN_IF_ERROR(network.load(l));
      for (Batch& batch : batches) {
        AroundFfn around = network.pass(batch.x_nd, batch.sequences);
        const auto picked = [&](const at::Tensor& x) {
          return at::index_select(x, 0, batch.rows).to(at::kCPU, at::kFloat).contiguous();
        };
        const at::Tensor before = picked(around.before), after = picked(around.after);
        const auto count = static_cast<std::size_t>(before.numel());
        TAILOR_RETURN_IF_ERROR(sink(l, {before.const_data_ptr<float>(), count},
                                    {after.const_data_ptr<float>(), count}));
        batch.x_nd = around.after;
        if (told) told(batch.sequences * time);
      }
    }
  }
  return Status::ok();
}

}  // namespace tailor::diagnose
