// The table of presets.h.
#include "model/shape/presets.h"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "base/text.h"

namespace tailor::shape {
namespace {

constexpr std::int64_t k113M = 113'246'208;

constexpr std::array kPresets = {
    Preset{"conv-113m-4x", 768, 12, 64, FfnKind::kSwiglu, 1, 3072, k113M},
    Preset{"conv-113m-8over3", 768, 16, 64, FfnKind::kSwiglu, 1, 2048, k113M},
    Preset{"conv-403m-4x", 1024, 24, 64, FfnKind::kSwiglu, 1, 4096, 402'653'184},
    Preset{"conv-906m-4x", 1536, 24, 64, FfnKind::kSwiglu, 1, 6144, 905'969'664},
    Preset{"conv-906m-8over3", 1536, 32, 64, FfnKind::kSwiglu, 1, 4096, 905'969'664},
    Preset{"conv-1.07b-4x", 2048, 16, 64, FfnKind::kSwiglu, 1, 8192, 1'073'741'824},
    // The scales of the width-schedule study, arXiv 2608.02064, whose shapes we could not read:
    // these are OURS. Its names are taken as total parameters (tied vocabulary of 50,304), FFNs
    // near the usual 8/3 d_model in multiples of 64; totals with norms: 127.1M, 257.1M, 440.2M.
    Preset{"conv-128m", 768, 12, 64, FfnKind::kSwiglu, 1, 2176, 88'473'600},
    Preset{"conv-256m", 1024, 16, 64, FfnKind::kSwiglu, 1, 2816, 205'520'896},
    Preset{"conv-440m", 1152, 24, 64, FfnKind::kSwiglu, 1, 3072, 382'205'952},
    Preset{"hourglass-113m-k6", 768, 12, 64, FfnKind::kHourglass, 6, 512, k113M},
    Preset{"hourglass-113m-k8", 768, 12, 64, FfnKind::kHourglass, 8, 384, k113M},
    Preset{"hourglass-113m-k12", 768, 12, 64, FfnKind::kHourglass, 12, 256, k113M},
    Preset{"hourglass-113m-k16", 768, 12, 64, FfnKind::kHourglass, 16, 192, k113M},
};

}  // namespace

std::span<const Preset> presets() { return kPresets; }

Result<Preset> find_preset(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return preset;
    names.push_back(preset.name);
  }
  const std::string near = nearest_name(name, names);
  return error(Code::kNotFound,
               fmt::format("there is no preset \"{}\"{}; allowed: {}", name,
                           near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near),
                           fmt::join(names, ", ")));
}

Architecture preset_architecture(const Preset& preset, std::int32_t vocab_size) {
  Architecture out;
  out.d_model = preset.d_model;
  out.head_dim = preset.head_dim;
  out.heads = preset.d_model / preset.head_dim;
  out.kv_heads = out.heads;
  out.vocab_size = vocab_size;
  out.ffn_kind = preset.ffn_kind;
  out.widths = uniform_widths(preset.layers, preset.k, preset.d_h);
  return out;
}

}  // namespace tailor::shape
