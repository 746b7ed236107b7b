// Small functions on one value a layer.
#include "geometry/profile_shaping.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>

#include "base/rng.h"
#include "base/text.h"

namespace tailor::geometry {
namespace {

constexpr double kLogFloor = 1e-12;

constexpr std::pair<Smoothing, std::string_view> kSmoothings[] = {
    {Smoothing::kNone, "none"}, {Smoothing::kGaussian, "gaussian"}, {Smoothing::kMedian, "median"}};
constexpr std::pair<Control, std::string_view> kControls[] = {{Control::kNone, "none"},
                                                              {Control::kMirrored, "mirrored"},
                                                              {Control::kInverse, "inverse"},
                                                              {Control::kReversed, "reversed"},
                                                              {Control::kPermuted, "permuted"}};

template <typename Pairs>
auto parse(const Pairs& pairs, std::string_view name, std::string_view what)
    -> Result<std::remove_cvref_t<decltype(pairs[0].first)>> {
  std::vector<std::string_view> names;
  std::string known;
  for (const auto& [value, text] : pairs) {
    if (text == name) return value;
    names.push_back(text);
    known += known.empty() ? "" : ", ";
    known += text;
  }
  const std::string near = nearest_name(name, names);
  return error(
      Code::kInvalidArgument,
      fmt::format("unknown {} \"{}\"{}; known: {}", what, name,
                  near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near), known));
}

Status check_work(std::span<const double> work) {
  for (std::size_t l = 0; l < work.size(); ++l) {
    if (!(work[l] >= 0) || !std::isfinite(work[l])) {
      return Status(Code::kInvalidArgument,
                    fmt::format("profile: the work of layer {} is {}; it must be finite and not "
                                "negative",
                                l, work[l]));
    }
  }
  return Status::ok();
}

// Layer l of a profile that is mirrored again and again at both ends: ... 1 0 | 0 1 2 | 2 1 ...
std::size_t reflected(std::ptrdiff_t l, std::size_t count) {
  const auto period = static_cast<std::ptrdiff_t>(2 * count);
  std::ptrdiff_t r = l % period;
  if (r < 0) r += period;
  return static_cast<std::size_t>(r < static_cast<std::ptrdiff_t>(count) ? r : period - 1 - r);
}

std::vector<double> gaussian(std::span<const double> work, double sigma) {
  const auto reach = static_cast<std::ptrdiff_t>(std::ceil(8 * sigma));
  std::vector<double> result(work.size());
  for (std::size_t l = 0; l < work.size(); ++l) {
    double sum = 0, weights = 0;
    for (std::ptrdiff_t step = -reach; step <= reach; ++step) {
      const double z = static_cast<double>(step) / sigma;
      const double weight = std::exp(-z * z / 2);
      const std::size_t k = reflected(static_cast<std::ptrdiff_t>(l) + step, work.size());
      sum += weight * std::log(work[k] + kLogFloor);
      weights += weight;
    }
    result[l] = std::max(0.0, std::exp(sum / weights) - kLogFloor);
  }
  return result;
}

std::vector<double> median(std::span<const double> work, int window) {
  std::vector<double> result(work.size()), values;
  for (std::size_t l = 0; l < work.size(); ++l) {
    values.clear();
    for (int step = -(window / 2); step <= window / 2; ++step) {
      values.push_back(work[reflected(static_cast<std::ptrdiff_t>(l) + step, work.size())]);
    }
    const auto middle = values.begin() + window / 2;
    std::nth_element(values.begin(), middle, values.end());
    result[l] = *middle;
  }
  return result;
}

}  // namespace

std::string_view smoothing_name(Smoothing smoothing) {
  return kSmoothings[static_cast<std::size_t>(smoothing)].second;
}

std::string_view control_name(Control control) {
  return kControls[static_cast<std::size_t>(control)].second;
}

Result<Smoothing> parse_smoothing(std::string_view name) {
  return parse(kSmoothings, name, "smoothing");
}

Result<Control> parse_control(std::string_view name) { return parse(kControls, name, "control"); }

Result<std::vector<double>> shape_profile(std::span<const double> work,
                                          const ShapingOptions& options) {
  TAILOR_RETURN_IF_ERROR(check_work(work));
  if (!(options.sigma > 0 && options.sigma <= 1e6) || options.window < 1 ||
      options.window % 2 == 0) {
    return error(
        Code::kInvalidArgument,
        fmt::format("profile: sigma ({}) must be positive and at most 1e6, the window ({}) "
                    "odd and positive",
                    options.sigma, options.window));
  }
  std::vector<double> result(work.begin(), work.end());
  if (result.empty()) return result;
  if (options.smoothing == Smoothing::kGaussian) result = gaussian(work, options.sigma);
  if (options.smoothing == Smoothing::kMedian) result = median(work, options.window);
  switch (options.control) {
    case Control::kNone:
      break;
    case Control::kMirrored: {
      const auto [low, high] = std::minmax_element(result.begin(), result.end());
      const double least = *low, most = *high;
      for (double& g : result) g = std::max(0.0, most + least - g);
      break;
    }
    case Control::kInverse:
      for (std::size_t l = 0; l < result.size(); ++l) {
        if (result[l] == 0 || !std::isfinite(1 / result[l])) {
          return error(
              Code::kInvalidArgument,
              fmt::format("profile: the work of layer {} is {}, which has no inverse; take "
                          "the mirrored control",
                          l, result[l]));
        }
        result[l] = 1 / result[l];
      }
      break;
    case Control::kReversed:
      std::reverse(result.begin(), result.end());
      break;
    case Control::kPermuted: {
      Rng rng = Rng::split(options.seed, "permuted profile");
      for (std::size_t i = result.size(); i > 1; --i) {
        std::swap(result[i - 1], result[static_cast<std::size_t>(rng.below(i))]);
      }
      break;
    }
  }
  return result;
}

Result<double> front_load_index(std::span<const double> work) {
  TAILOR_RETURN_IF_ERROR(check_work(work));
  const double total = std::accumulate(work.begin(), work.end(), 0.0);
  if (!(total > 0) || !std::isfinite(total)) {
    return error(Code::kInvalidArgument, "profile: there is no work to have a front");
  }
  const double third = static_cast<double>(work.size()) / 3;
  double front = 0;
  for (std::size_t l = 0; l < work.size(); ++l) {
    front += work[l] * std::clamp(third - static_cast<double>(l), 0.0, 1.0);
  }
  return front / total;
}

Result<double> scale_exponent(std::span<const double> scales, std::span<const double> values) {
  if (scales.size() != values.size()) {
    return error(Code::kInvalidArgument, fmt::format("scale exponent: {} scales for {} values",
                                                     scales.size(), values.size()));
  }
  double mean_x = 0, mean_y = 0;
  const double count = static_cast<double>(scales.size());
  for (std::size_t i = 0; i < scales.size(); ++i) {
    if (!(scales[i] > 0) || !std::isfinite(scales[i]) || !(values[i] > 0) ||
        !std::isfinite(values[i])) {
      return error(Code::kInvalidArgument,
                   fmt::format("scale exponent: the value {} at scale {} has no logarithm",
                               values[i], scales[i]));
    }
    mean_x += std::log(scales[i]) / count;
    mean_y += std::log(values[i]) / count;
  }
  double xx = 0, xy = 0;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const double x = std::log(scales[i]) - mean_x;
    xx += x * x;
    xy += x * (std::log(values[i]) - mean_y);
  }
  if (!(xx > 0)) {
    return error(Code::kInvalidArgument,
                 "scale exponent: at least two different scales are needed");
  }
  return xy / xx;
}

}  // namespace tailor::geometry
