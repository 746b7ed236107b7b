// tailor shape: exact counts of one architecture file. Works without a coordinator.
#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"
#include "client/table.h"
#include "model/shape/count.h"
#include "sweep/architecture_file.h"

namespace tailor::client {

void add_shape(CLI::App& app, Context& context) {
  struct Options {
    std::string file;
    std::int64_t sequence = 2048;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, "shape", "Exact parameter counts and FLOPs of an architecture file.",
                  "  tailor shape arch.toml\n  tailor shape arch.toml --seq 1024 --json");
  command->add_option("ARCH.toml", options->file, "a file with the keys of [architecture]")
      ->required();
  command->add_option("--seq", options->sequence, "sequence length for the FLOPs")
      ->check(CLI::Range(1, 1 << 24));
  command->callback([&context, options] {
    const std::string text = require(read_file(options->file, 64 << 20));
    const shape::Architecture architecture =
        require(sweep::parse_architecture_toml(text, options->file));
    const shape::Counts counts = shape::count_parameters(architecture);
    const double flops = shape::forward_flops_per_token(architecture, options->sequence);
    const Printer out = context.printer();
    if (out.json()) {
      Json json;
      json["attention"] = counts.attention;
      json["ffn"] = counts.ffn;
      json["norms"] = counts.norms;
      json["embedding"] = counts.embedding;
      json["body"] = counts.body;
      json["total"] = counts.total;
      json["sequence_length"] = options->sequence;
      json["flops_per_token"] = flops;
      json["training_flops_per_token"] =
          shape::training_flops_per_token(architecture, options->sequence);
      json["layers"] = Json::array();
      for (std::size_t l = 0; l < counts.layers.size(); ++l) {
        json["layers"].push_back({{"widths", architecture.widths[l]},
                                  {"attention", counts.layers[l].attention},
                                  {"ffn", counts.layers[l].ffn},
                                  {"norms", counts.layers[l].norms}});
      }
      return out.document(json);
    }
    std::vector<std::vector<std::string>> rows = {
        {"attention", with_thousands(counts.attention)},
        {"ffn", with_thousands(counts.ffn)},
        {"body", with_thousands(counts.body)},
        {"norms", with_thousands(counts.norms)},
        {"embedding", with_thousands(counts.embedding)},
        {"total", with_thousands(counts.total)},
        {fmt::format("forward FLOPs/token at T={}", options->sequence),
         fmt::format("{:.4e}", flops)}};
    out.table({{"PART"}, {"COUNT", Align::kRight}}, rows);
  });
}

}  // namespace tailor::client
