// What a trial takes, in words.
#include <fmt/format.h>

#include "sweep/spec.h"

namespace tailor::sweep {
namespace {

std::string gib(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

std::string resources_text(const ResourceSpec& resources) {
  const std::string_view kind = resources.gpus > 0 ? "GPU" : "CPU slot";
  std::string text =
      fmt::format("{} {}{}", resources.slots(), kind, resources.slots() == 1 ? "" : "s");
  if (resources.gpu_memory_bytes > 0) text += " of at least " + gib(resources.gpu_memory_bytes);
  if (resources.memory_bytes > 0) text += ", " + gib(resources.memory_bytes) + " of memory";
  const bool elastic = resources.nodes_min < resources.nodes;
  const std::int32_t fewest = resources.nodes_min * resources.slots();
  if (resources.nodes > 1) {
    text += fmt::format(" on each of {}{} nodes",
                        elastic ? fmt::format("{} to ", resources.nodes_min) : "", resources.nodes);
  }
  if (resources.ranks() > 1) {
    text += fmt::format(" ({}{} ranks)", elastic ? fmt::format("{} to ", fewest) : "",
                        resources.ranks());
  }
  if (!resources.labels.empty()) {
    text += fmt::format(" where there is {}", fmt::join(resources.labels, ", "));
  }
  return text;
}

}  // namespace tailor::sweep
