// tailor submit: hands a sweep file to the coordinator. The same file twice is the same sweep.
#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "client/format.h"
#include "client/table.h"
#include "sweep/candidate.h"

namespace tailor::client {

void add_submit(CLI::App& app, Context& context) {
  struct Options {
    std::string file;
    bool watch = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      app, "submit", "Starts a sweep. Submitting the same file again gives the same sweep.",
      "  tailor submit sweep.toml\n  tailor submit sweep.toml --watch\n  tailor submit sweep.toml "
      "--json");
  command->add_option("SWEEP.toml", options->file, "the sweep file")->required();
  command->add_flag("--watch", options->watch, "follow it until it ends");
  command->callback([&context, options] {
    const std::string text = require(read_file(options->file, 64 << 20));
    const std::string base =
        std::filesystem::absolute(options->file).lexically_normal().parent_path().string();
    // Checked here first: errors need no coordinator, and nothing is submitted.
    const sweep::Spec spec = require(sweep::parse(text, options->file, base));
    require(status_of(sweep::resolve_named(spec)));

    v1::SubmitSweepRequest request;
    request.set_toml(text);
    request.set_file_name(options->file);
    request.set_base_dir(base);
    const auto answer = context.call<v1::SubmitSweepRequest, v1::SubmitSweepResponse>(
        &v1::CoordinatorService::Stub::SubmitSweep, request);
    const Printer out = context.printer();
    if (out.json() && !options->watch) {
      Json json = to_json(answer);
      json["name"] = spec.name;
      out.document(json);
    } else if (!out.json()) {
      out.line(fmt::format("{} {} {}: {} trials", sweep_text(answer.sweep()), spec.name,
                           answer.created() ? "submitted" : "is already there (same file)",
                           answer.trials()));
    }
    if (!options->watch) return;
    v1::SweepRef ref;
    ref.set_id(answer.sweep());
    const Exit exit = watch_sweep(context, ref, 1.0);
    if (exit != Exit::kOk) throw Failure(exit, "");
  });
}

}  // namespace tailor::client
