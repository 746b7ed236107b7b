// tailor-trainer: runs one trial from its directory. Knows nothing of the network; see trial_dir.h
// for its whole interface and protocol/report.h for its exit codes.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "base/logging.h"
#include "protocol/report.h"
#include "worker/trainer/bench.h"
#include "worker/trainer/diagnose.h"
#include "worker/trainer/evaluate.h"
#include "worker/trainer/inspect.h"
#include "worker/trainer/run.h"

using namespace tailor;
using protocol::TrainerExit;

int main(int argc, char** argv) {
  CLI::App app{
      "Trains one trial from its directory.\n\nExamples:\n  tailor-trainer run trials/t41.1\n"
      "  tailor-trainer run trials/t41.1 --ranks 4\n"
      "  tailor-trainer run trials/t41.1 --ranks 16 --rank 5 --rendezvous node0:29500\n"
      "  tailor-trainer run trials/t41.1 --ranks 16 --rank 8 --local-ranks 8 --rendezvous "
      "node0:29500\n"};
  app.set_version_flag("--version",
                       std::string("tailor-trainer " TAILOR_VERSION " " TAILOR_COMMIT));
  app.require_subcommand(1);
  trainer::RunOptions trial;
  CLI::App* run_command = app.add_subcommand(
      "run",
      "Run the trial in DIR (spec.json) to its end, resuming from its newest good checkpoint.\n"
      "Exit codes: 0 completed, 2 bad spec, 3 data, 4 out of memory, 5 NaN, 6 stopped (SIGTERM, "
      "lease), 7 other, 8 another rank was lost.\n"
      "With --ranks N alone, this process is rank 0 and starts the other ranks on this machine;\n"
      "with --rank too, every rank is started by somebody else.");
  run_command->add_option("DIR", trial.directory, "trial directory")->required();
  run_command->add_option("--ranks", trial.ranks, "processes that share every batch");
  run_command->add_option("--rank", trial.rank, "which of them this is, from 0")
      ->check(CLI::NonNegativeNumber);
  run_command->add_option("--rendezvous", trial.rendezvous,
                          "HOST:PORT where rank 0 listens while the ranks meet; with port 0 it "
                          "writes the one it got to DIR/rendezvous");
  run_command
      ->add_option("--local-rank", trial.local_rank,
                   "which of this machine's ranks this is, from 0: with device cuda:K it takes GPU "
                   "K + this")
      ->check(CLI::NonNegativeNumber);
  run_command->add_option("--local-ranks", trial.local_ranks,
                          "with --rank R: ranks R to R + this - 1 run on this machine, and this "
                          "process starts those after R");
  run_command->add_option("--lost-after", trial.lost_after_s,
                          "seconds of silence after which a rank is lost (10)");
  run_command->add_option("--log-level", trial.log_level, "debug, info, warn or error");
  trainer::BenchOptions bench;
  std::string dtype = "f32";
  CLI::App* bench_command =
      app.add_subcommand("bench", "Time training steps of a shape on this machine.");
  bench_command->add_option("--arch", bench.architecture_file, "ARCH.toml")->required();
  bench_command->add_option("--device", bench.device, "cpu or cuda:N");
  bench_command->add_option("--batch", bench.batch, "sequences of one step");
  bench_command->add_option("--micro-batch", bench.micro_batch,
                            "sequences of one forward pass (0: all)");
  bench_command->add_flag("--graph", bench.graph, "record the step as a CUDA graph and replay it");
  bench_command->add_flag("--any-order", bench.any_order,
                          "allow kernels whose sums have no fixed order; trials do not use them");
  bench_command->add_option("--seq", bench.sequence_length, "tokens of a sequence");
  bench_command->add_option("--dtype", dtype, "f32 or bf16")->check(CLI::IsMember({"f32", "bf16"}));
  bench_command->add_option("--threads", bench.threads, "CPU threads");
  bench_command->add_option("--steps", bench.steps, "timed steps");
  bench_command->add_flag("--json", bench.json, "one line of JSON");
  trainer::InspectOptions inspect;
  std::string inspect_dtype = "f32";
  const auto inspecting = [&](CLI::App* command, const std::string& out) {
    command
        ->add_option("--model", inspect.model, "folder with config.json and safetensors, or GGUF")
        ->required();
    command->add_option("--tokens", inspect.tokens, "IDS.npy: integers, (T) or (B, T)")->required();
    command->add_option("--out", inspect.out, out)->required();
    command->add_option("--dtype", inspect_dtype, "f32 or bf16")
        ->check(CLI::IsMember({"f32", "bf16"}));
    command->add_option("--device", inspect.device, "cpu or cuda:N");
    command->add_option("--threads", inspect.threads, "CPU threads");
    return command;
  };
  CLI::App* logits_command = inspecting(
      app.add_subcommand("logits", "Scores of a model for given tokens, (B, T, v) float32."),
      "LOGITS.npy");
  CLI::App* clouds_command = inspecting(
      app.add_subcommand("clouds",
                         "The residual stream around the FFN of each layer, as clouds that `tailor "
                         "geometry work` reads:\nFOLDER/layer_L_before.npy, layer_L_after.npy."),
      "FOLDER");
  clouds_command->add_option("--layers", inspect.layers, "\"all\", or numbers from 0: 0,3,5");
  clouds_command->add_flag("--sub-blocks", inspect.sub_blocks, "also around each sub-MLP");
  clouds_command->add_option("--skip", inspect.skip,
                             "positions left out at the start of a sequence");
  trainer::EvaluateOptions evaluate;
  CLI::App* evaluate_command = app.add_subcommand(
      "evaluate", "Score a model on multiple-choice tasks, or measure its perplexity.");
  trainer::add_evaluate_options(*evaluate_command, evaluate);
  trainer::DiagnoseOptions diagnose;
  CLI::App* diagnose_command = app.add_subcommand(
      "diagnose",
      "What each layer of a model does to its tokens, and how much the loss minds: work profiles,\n"
      "dimension, sensitivity, additivity and their correlations, with errors, as a report.");
  trainer::add_diagnose_options(*diagnose_command, diagnose);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& failure) {
    const int code = app.exit(failure);
    return code == 0 ? 0 : static_cast<int>(TrainerExit::kUsage);
  }
  if (const Status status = init_logging(trial.log_level); !status) {
    std::fprintf(stderr, "tailor-trainer: %s\n", status.message().c_str());
    return static_cast<int>(TrainerExit::kUsage);
  }
  if (bench_command->parsed()) {
    bench.bf16 = dtype == "bf16";
    return trainer::run_bench(bench);
  }
  inspect.bf16 = inspect_dtype == "bf16";
  if (logits_command->parsed()) return trainer::run_logits(inspect);
  if (clouds_command->parsed()) return trainer::run_clouds(inspect);
  if (evaluate_command->parsed()) return trainer::run_evaluate(evaluate);
  if (diagnose_command->parsed()) return trainer::run_diagnose(diagnose);
  return trainer::run(trial);
}
